import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { atLeastZero } from '@tollkeeper/sdk/protocol/amount'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { zeroHash } from '@tollkeeper/sdk/protocol/receipt'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { tabStateDigest, toWord } from '@tollkeeper/sdk/protocol/tab'
import { type TabLineClaims, type TabLineSale, tabLineType } from '@tollkeeper/sdk/protocol/tabLine'
import type { Address } from 'viem'
import type { PaymentRecord } from '../records/payments.ts'
import type { ReceiptKey } from './keys.ts'
import { signJws } from './signReceipt.ts'

/** A provider's sales on a line of a tab that is in the ledger. The rows stay when the tab's requests are deleted. */
export type ProviderTabLine = {
  paymentId: string
  tabId: string
  /** Position of the line in the state that settles; its first position if the state lists the line more than once. */
  position: number
  split: bigint
  payee: Address
  sequence: number
  rewardShare: number
  openedAt: Date
  /**
   * USDC base units: the amount signed on the line, the part of it that is charged, and the part that another state of the tab moved. `moved` is null
   * if no other state settled.
   */
  signed: bigint
  charged: bigint
  moved: bigint | null
  /** Sum of the sales of all providers on the line. */
  sold: bigint
  /** This provider's sales, in the order in which they were bought. */
  sales: (Pick<TabLineSale, 'endpointId' | 'requests'> & {
    providerAmount: bigint
    feeAmount: bigint
    lastAt: Date
  })[]
  /** All lines of the state that settles. */
  state: { split: bigint; amount: bigint }[]
}

type Row = {
  paymentId: string
  tabId: string
  sequence: number
  rewardShare: number
  openedAt: Date
  lines: {
    position: number
    payee: Address
    shares: [string, string]
    amount: string
    charged: string
    moved: string | null
    sold: string
  }[]
  sales: {
    position: number
    endpointId: string
    requests: number
    net: string
    fee: string
    lastAt: string
  }[]
}

/**
 * Finds the lines of tabs on which a provider sold something.
 *
 * Lines with the same wallet and the same shares count as one, because the chain adds them up as well.
 *
 * @returns each tab's lines in their order, keyed by tab.
 */
export async function findProviderTabLines(
  sql: Queryable,
  providerId: string,
  paymentIds: readonly string[],
): Promise<Map<string, ProviderTabLine[]>> {
  if (paymentIds.length === 0) return new Map()
  const rows = await sql<Row[]>`
    select t.payment_id as "paymentId", t.tab_id as "tabId", t.sequence::float8 as sequence, t.reward_share as "rewardShare",
      t.opened_at as "openedAt", lines.lines, sales.sales
    from tab_payment t
    cross join lateral (
      select json_agg(json_build_object('position', l.position, 'payee', l.payee,
        'shares', json_build_array(l.provider_share::text, l.platform_share::text), 'amount', l.amount::text,
        'charged', l.charged::text, 'moved', l.moved::text, 'sold', coalesce(sold.total, 0)::text) order by l.position) as lines
      from tab_line l
      left join lateral (
        select sum(s.provider_amount + s.fee_amount) as total from sale s
        where s.payment_id = l.payment_id and s.position = l.position
      ) sold on true
      where l.payment_id = t.payment_id
    ) lines
    cross join lateral (
      select json_agg(json_build_object('position', s.position, 'endpointId', s.endpoint_id, 'requests', s.requests,
        'net', s.provider_amount::text, 'fee', s.fee_amount::text, 'lastAt', iso_time(s.accepted_at)) order by s.number) as sales
      from sale s where s.payment_id = t.payment_id and s.provider_id = ${providerId}
    ) sales
    where t.payment_id in ${sql(paymentIds)} and sales.sales is not null`
  return new Map(rows.map((row) => [row.paymentId, toLines(row)]))
}

function toLines({ lines, sales, ...tab }: Row): ProviderTabLine[] {
  const state = lines.map(({ payee, shares, amount }) => ({
    split: encodeSplit({
      provider: payee,
      providerShare: BigInt(shares[0]),
      platformShare: BigInt(shares[1]),
    }),
    amount: BigInt(amount),
  }))
  const places = Map.groupBy(lines.keys(), (index) => state[index]?.split ?? 0n)
  return [...places].flatMap(([split, indexes]): ProviderTabLine[] => {
    const own = indexes.flatMap((index) => lines[index] ?? [])
    const positions = own.map(({ position }) => position)
    const sold = sales.filter(({ position }) => positions.includes(position))
    const [first] = own
    if (sold.length === 0 || first === undefined) return []
    const sum = (amounts: string[]) => amounts.reduce((all, amount) => all + BigInt(amount), 0n)
    return [
      {
        ...tab,
        position: first.position,
        split,
        payee: first.payee,
        signed: sum(own.map(({ amount }) => amount)),
        charged: sum(own.map(({ charged }) => charged)),
        // If another state settled, a null `moved` means that the line moved as signed.
        moved: own.some(({ moved }) => moved !== null)
          ? sum(own.map(({ moved, amount }) => moved ?? amount))
          : null,
        sold: sum(own.map(({ sold }) => sold)),
        sales: sold.map(({ endpointId, requests, net, fee, lastAt }) => ({
          endpointId,
          requests,
          providerAmount: BigInt(net),
          feeAmount: BigInt(fee),
          lastAt: new Date(lastAt),
        })),
        state,
      },
    ]
  })
}

export type TabLineSigning = {
  network: Network
  providerId: string
  /** The newest block that the record covers; null: none yet. */
  indexedBlock: number | null
  issuer: string
  /** Unix milliseconds. */
  signedAt: number
  key: ReceiptKey
}

/**
 * Signs a provider's sales on a line of a tab in their current state: a JWS with the gateway's receipt key and a separate `typ`. The JWS names
 * the transaction once the transaction has its network's confirmations.
 */
export function signTabLine(line: ProviderTabLine, payment: PaymentRecord, signing: TabLineSigning): string {
  const { key } = signing
  return signJws({ alg: 'ES256', typ: tabLineType, kid: key.kid }, tabLineClaims(line, payment, signing), key)
}

function tabLineClaims(
  line: ProviderTabLine,
  { status, provider, validBefore, token, payer, payee: contract, feeRecipient, acceptedAt }: PaymentRecord,
  { network, providerId, indexedBlock, issuer, signedAt }: TabLineSigning,
): TabLineClaims {
  const { sequence, rewardShare, split, sales, signed, charged, moved, sold } = line
  const { state, txHash, blockHash, blockNumber, nonce } = provider
  const isConfirmed =
    blockNumber !== null && Number(blockNumber) + network.confirmations <= (indexedBlock ?? -1)
  const hasMoved = (state === 'settled' || state === 'foreign_use') && txHash !== null && blockHash !== null
  const [net, fee] = [sales.reduce((sum, { providerAmount }) => sum + providerAmount, 0n), sumFees(sales)]
  const terms = { platform: feeRecipient, rewardShare, chainId: network.chainId }
  return {
    iss: issuer,
    iat: Math.floor(signedAt / 1000),
    status,
    network: network.name,
    testnet: network.testnet,
    asset: token,
    contract,
    paymentId: line.paymentId,
    providerId,
    payer,
    validBefore: validBefore.toString(),
    payee: line.payee,
    platform: feeRecipient,
    tab: {
      id: line.tabId,
      split: toWord(split),
      rewardShare,
      sequence,
      state: tabStateDigest(terms, { nonce, payer, sequence, lines: line.state }, keccak256),
    },
    requests: sales.reduce((sum, { requests }) => sum + requests, 0),
    totalUsdc: `${net + fee}`,
    providerUsdc: `${net}`,
    platformUsdc: `${fee}`,
    sales: sales.map(({ endpointId, requests, providerAmount, feeAmount, lastAt }) => ({
      endpointId,
      requests,
      totalUsdc: `${providerAmount + feeAmount}`,
      providerUsdc: `${providerAmount}`,
      platformUsdc: `${feeAmount}`,
      lastAt: lastAt.toISOString(),
    })),
    line: {
      signedUsdc: `${signed}`,
      chargedUsdc: `${charged}`,
      creditUsdc: `${atLeastZero(sold - charged)}`,
      othersUsdc: `${sold - net - fee}`,
      ...(hasMoved && moved !== null && { movedUsdc: `${moved}` }),
    },
    openedAt: line.openedAt.toISOString(),
    closedAt: acceptedAt.toISOString(),
    transactionHash: hasMoved && isConfirmed ? txHash : zeroHash,
    ...(hasMoved && isConfirmed && { blockHash }),
  }
}

function sumFees(sales: ProviderTabLine['sales']): bigint {
  return sales.reduce((sum, { feeAmount }) => sum + feeAmount, 0n)
}
