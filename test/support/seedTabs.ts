import type { Evidence } from '@tollkeeper/chain/evidence'
import { type ClosedLine, type ClosedTab, takeTabs } from '@tollkeeper/ledger/acceptance/takeTabs'
import { recordEvents } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { platformPart, type TabLine, tabNonce } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hex } from 'viem'
import {
  blockHashOf,
  type SeededPayment,
  type SeedProvider,
  seedChainId,
  seedPlatform,
  seedToken,
} from './seedPayments.ts'
import { randomHex } from './usdc.ts'

/** The address of TabSettlement, as the ledger knows it. */
export const seedTabSettlement: Address = `0x${'7a'.repeat(20)}`

/** Requests for one endpoint within an hour; default: 10 requests for 0.0001 USDC each. */
export type SeedSale = {
  provider: Pick<SeedProvider, 'providerId' | 'wallet' | 'endpointIds'>
  endpointId?: string
  requests?: number
  /** The sum of the prices in USDC base units. A tenth of it is the platform's. */
  amount?: bigint
  /** Time of the last of these requests; default: when the tab closed. */
  acceptedAt?: Date
}

export type SeedTab = {
  sales: readonly SeedSale[]
  payer?: Address
  closedAt?: Date
  closeReason?: string
  token?: Address
  /** Unix seconds. */
  expiresAt?: number
  /** The gateway's public URL, from which the tab's nonce is derived. Default: a random nonce. */
  issuer?: string
}

/** Stored tab. `lines`: the wallet of each line and the amount signed on it, by position. */
export type SeededTab = SeededPayment & {
  tabId: string
  token: Address
  lines: { payee: Address; amount: bigint }[]
}

/** Stores a closed tab, as the gateway adds it to the ledger. */
export async function seedTab(sql: Database, options: SeedTab): Promise<SeededTab> {
  const tab = makeClosedTab(options)
  const refused = await takeTabs(sql, [tab])
  if (refused.length > 0) throw new Error('a tab was refused')
  const { paymentId, payer, tabId, token, nonce, lines } = tab
  return { paymentId, payer, nonces: [nonce, nonce], tabId, token, lines }
}

/** Creates a tab that was closed half an hour after it was opened, as the tab store returns it. */
export function makeClosedTab({
  sales,
  payer = randomHex(20),
  closedAt = new Date(),
  closeReason = 'idle',
  token = seedToken,
  expiresAt = Math.floor(closedAt.getTime() / 1000) + 93_600,
  issuer,
}: SeedTab): ClosedTab & { lines: ClosedLine[] } {
  const lines: ClosedLine[] = []
  const sold = sales.map((sale) => {
    const { requests = 10, amount = BigInt(requests) * 100n, acceptedAt = closedAt } = sale
    const { providerId, wallet, endpointIds } = sale.provider
    const known = lines.findIndex(({ payee }) => payee === wallet)
    const line = known < 0 ? lines.push(emptyLine(wallet)) - 1 : known
    const { amount: before } = lines[line] as ClosedLine
    lines[line] = { ...emptyLine(wallet), amount: before + amount, charged: before + amount }
    const feeAmount = platformPart(
      encodeSplit({ provider: wallet, providerShare: 9n, platformShare: 1n }),
      amount,
    )
    return {
      line,
      providerId,
      endpointId: sale.endpointId ?? endpointIds[0] ?? '',
      requests,
      providerAmount: amount - feeAmount,
      feeAmount,
      acceptedAt: acceptedAt.getTime(),
    }
  })
  const requests = sold.reduce((sum, sale) => sum + sale.requests, 0)
  const tabId = `tab_${randomHex(16).slice(2)}`
  return {
    paymentId: newId('pay'),
    tabId,
    chainId: seedChainId,
    token,
    payer,
    payerHasCode: false,
    contract: seedTabSettlement,
    platform: seedPlatform,
    rewardShare: seedRewardShare,
    sequence: requests,
    requests,
    closeReason,
    openedAt: closedAt.getTime() - 1_800_000,
    closedAt: closedAt.getTime(),
    expiresAt,
    nonce: issuer === undefined ? randomHex(32) : tabNonce(issuer, tabId),
    signature: randomHex(65),
    lines,
    sales: sold,
  }
}

/** Returns a line on which nothing was bought. A tenth of its amount is the platform's. */
const emptyLine = (payee: Address): ClosedLine => ({
  payee,
  providerShare: 9n,
  platformShare: 1n,
  amount: 0n,
  charged: 0n,
})

/** The block in which a tab settled, and the terms that the tab's payer signed. */
export type SettledAt = {
  txHash?: Hex
  blockNumber?: number
  blockTime?: number
  /** Terms that the tab's payer signed. Default: the accepted terms. */
  platform?: Address
  rewardShare?: number
}

/** The accepted reward in basis points of the platform's share. */
const seedRewardShare = 500

/** Records that a tab settled in a block, in the state that the ledger has. */
export function settleTab(sql: Database, tab: SeededTab, at: SettledAt = {}): Promise<Hex> {
  return recordState(
    sql,
    tab,
    tab.lines.map(({ amount }) => amount),
    at,
  )
}

/**
 * Records that a tab settled in a state other than the ledger's.
 *
 * @param moved the amount of the settled state on each line.
 */
export async function seedOlderState(
  sql: Database,
  tab: SeededTab,
  moved: readonly bigint[],
  at: SettledAt = {},
): Promise<Hex> {
  const txHash = await recordState(sql, tab, moved, at)
  for (const [position, amount] of moved.entries())
    await sql`update tab_line set moved = ${amount} where payment_id = ${tab.paymentId} and position = ${position}`
  return txHash
}

async function recordState(
  sql: Database,
  { payer, token, nonces, lines }: SeededTab,
  amounts: readonly bigint[],
  {
    txHash = randomHex(32),
    blockNumber = 100,
    blockTime = 1_795_262_400,
    platform = seedPlatform,
    rewardShare = seedRewardShare,
  }: SettledAt,
): Promise<Hex> {
  const split = (payee: Address) => (BigInt(payee) << 96n) | (9n << 48n) | 1n
  const state = {
    payer,
    nonce: nonces[0],
    sequence: 1,
    lines: lines.map(({ payee }, position) => ({ split: split(payee), amount: amounts[position] ?? 0n })),
    platform,
    rewardShare,
  }
  const place = {
    number: BigInt(blockNumber),
    hash: blockHashOf(blockNumber),
    time: BigInt(blockTime),
  }
  const event = { ...tabEvidence(state, place, txHash), batchLogIndex: 9 }
  await sql.begin((tx) => recordEvents(tx, { chainId: seedChainId, token }, [event], 'index'))
  return txHash
}

/** Returns the evidence that a chain contains if a state of a tab settled in a block. */
export function tabEvidence(
  {
    payer,
    nonce,
    sequence,
    lines,
    platform = seedPlatform,
    rewardShare = seedRewardShare,
  }: {
    payer: Address
    nonce: Hex
    sequence: number
    lines: readonly TabLine[]
    platform?: Address
    rewardShare?: number
  },
  { number: blockNumber, hash: blockHash, time: blockTime }: { number: bigint; hash: Hex; time: bigint },
  txHash: Hex = randomHex(32),
): Evidence {
  return {
    authorizer: payer,
    nonce,
    state: 'used',
    recipient: seedTabSettlement,
    value: lines.reduce((sum, { amount }) => sum + amount, 0n),
    tab: { platform, rewardShare, sequence, lines: [...lines] },
    txHash,
    logIndex: 0,
    blockNumber,
    blockHash,
    blockTime,
  }
}
