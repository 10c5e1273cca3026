import { keccak256 } from '@tollkeeper/chain/keccak256'
import { checkSignaturesHere } from '@tollkeeper/chain/payerSignatures'
import { describeError } from '@tollkeeper/runtime/log'
import {
  leastTabAmount,
  platformPart,
  providerOfSplit,
  type TabTerms,
  tabAuthorization,
} from '@tollkeeper/sdk/protocol/tab'
import type { Hex } from 'viem'
import { type ClosedTab, type TabSale, takeTabs } from '../acceptance/takeTabs.ts'
import type { Database } from '../store/database.ts'
import { type TabDatabase, toBytes, toHex } from './tabDatabase.ts'
import { type StoredTab, type TabRow, tabBytes, tabColumns, toStoredTab } from './tabStore.ts'

export type TakeOptions = {
  /** The ledger. */
  sql: Database
  tabs: TabDatabase
  /** Domain separators of USDC on the served networks, by chain id. */
  separators: ReadonlyMap<number, Hex>
  /** By chain id, the least amount with which a tab of one line settles. */
  least: ReadonlyMap<number, bigint>
  limit: number
  checkpoint: (name: 'after-tab-taken') => void | Promise<void>
}

/** A request on a tab, as it is stored. */
type Request = {
  sequence: number
  position: number
  price: bigint
  charged: bigint
  providerId: string
  endpointId: string
  acceptedAt: Date
  signature: Uint8Array
}

type ClosedRow = StoredTab & { hasCode: boolean; lastSignature: Uint8Array | null }

/** The state that settles, and on each line what its buyer signed too much. */
type Settling = { sequence: number; amounts: bigint[]; signature: Hex; credits: bigint[] }

/**
 * Takes closed tabs into the ledger, each as a payment. They are stored there first and marked afterwards: after a crash between the
 * two it runs again, with the same outcome.
 *
 * @returns how many it took; if that is `limit`, there may be more.
 * @throws {AggregateError} if some can't be taken in, once all others are.
 */
export async function takeClosedTabs({ sql, tabs, limit, ...options }: TakeOptions): Promise<number> {
  const closed = await readClosed(tabs, limit)
  const failed: Error[] = []
  for (const tab of closed) {
    await takeTab({ sql, tabs, ...options }, tab).catch((cause: unknown) => {
      failed.push(new Error(`${tab.tabId} can't be taken in: ${describeError(cause)}`, { cause }))
    })
  }
  if (failed.length > 0) throw new AggregateError(failed, failed.map(({ message }) => message).join('; '))
  return closed.length
}

async function readClosed({ all: sql }: TabDatabase, limit: number): Promise<ClosedRow[]> {
  const rows = await sql<(TabRow & Pick<ClosedRow, 'hasCode' | 'lastSignature'>)[]>`
    select ${tabColumns(sql)}, t.has_code as "hasCode", t.last_signature as "lastSignature"
    from tabs.tab t where t.closed_at is not null and t.taken_at is null
    order by t.closed_at limit ${limit}`
  return rows.map(toStoredTab)
}

async function takeTab(options: Omit<TakeOptions, 'limit'>, tab: ClosedRow): Promise<void> {
  const { sql, tabs, least } = options
  const charged = tab.lines.reduce((sum, line) => sum + atLeastZero(line.charged), 0n)
  if (charged === 0n || charged < leastTabAmount(least.get(tab.chainId) ?? 0n, tab.lines.length)) {
    await sql`select from leave_unpaid(${tab.payer}, ${tab.tabId}, ${charged}::numeric)`
    await options.checkpoint('after-tab-taken')
    await markTaken(tabs, tab, [])
    return
  }
  const requests = await readRequests(tabs, tab)
  const settling = chooseState(options, tab, requests)
  const closed: ClosedTab = {
    ...tab,
    payerHasCode: tab.hasCode,
    sequence: settling.sequence,
    signature: settling.signature,
    closeReason: tab.closeReason ?? '',
    openedAt: tab.openedAt.getTime(),
    closedAt: (tab.closedAt as Date).getTime(),
    lines: settling.amounts.map((amount, index) => toLine(tab.lines[index]?.split as bigint, amount)),
    sales: toSales(tab, requests).filter(({ line }) => line < settling.amounts.length),
  }
  await takeTabs(sql, [closed])
  await options.checkpoint('after-tab-taken')
  await markTaken(tabs, tab, settling.credits)
}

function toLine(split: bigint, amount: bigint): ClosedTab['lines'][number] {
  const share = 2n ** 48n - 1n
  return {
    payee: providerOfSplit(split),
    providerShare: (split >> 48n) & share,
    platformShare: split & share,
    amount,
  }
}

/**
 * Chooses the state that settles: the newest, if it is just what is charged; else an older one that is, because later requests were
 * not charged. If there is none, the newest settles, and its buyer is credited afterwards with what it signed too much.
 */
function chooseState(
  { separators }: Pick<TakeOptions, 'separators'>,
  tab: ClosedRow,
  requests: readonly Request[],
): Settling {
  const charged = tab.lines.map((line) => atLeastZero(line.charged))
  const amounts = tab.lines.slice(0, tab.signedLines).map((line) => line.signed)
  const newest = {
    sequence: tab.sequence,
    amounts,
    signature: toHex(tab.lastSignature ?? (signatureOf(requests, tab.sequence) as Uint8Array)),
    credits: amounts.map((amount, index) => amount - (charged[index] ?? 0n)),
  }
  const separator = separators.get(tab.chainId)
  if (newest.credits.every((credit) => credit === 0n) || tab.hasCode || separator === undefined) return newest
  // What a credit paid for alone is a sale on its line, too, though that settles nothing.
  const soldLines = requests.reduce(
    (most, { charged, position }) => (charged > 0n ? Math.max(most, position + 1) : most),
    1,
  )
  // If no request was lost, the purchases tell what the buyer signed in between, and the signature proves it.
  for (const { sequence, signature } of requests.toReversed().slice(0, statesTried)) {
    for (let width = tab.lines.length; width >= soldLines; width--) {
      const amounts = charged.slice(0, width)
      if (isSigned(separator, tab, { sequence, amounts, signature: toHex(signature) }))
        return { sequence, amounts, signature: toHex(signature), credits: [] }
      // A state without a line doesn't pay for it.
      if (amounts[width - 1] !== 0n) break
    }
  }
  return newest
}

function isSigned(
  separator: Hex,
  { tabId, payer, contract, platform, rewardShare, nonce, expiresAt: expiry, lines }: StoredTab,
  { sequence, amounts, signature }: Pick<Settling, 'sequence' | 'amounts' | 'signature'>,
): boolean {
  const own = amounts.map((amount, index) => ({ split: lines[index]?.split as bigint, amount }))
  const terms: TabTerms = { issuer: '', contract, platform, rewardShare }
  const state = { tabId, payer, sequence, expiry, lines: own }
  // The nonce alone holds the issuer, and it is stored.
  const signed = { ...tabAuthorization(terms, state, keccak256), nonce, signature }
  return checkSignaturesHere(separator, [signed])[0] === true
}

/** How many states are checked for one that is just what is charged. */
const statesTried = 64

function signatureOf(requests: readonly Request[], sequence: number): Uint8Array | undefined {
  return requests.find((one) => one.sequence === sequence)?.signature
}

/** Sums sales by line, endpoint and hour. The platform's part is rounded down once a line, so sales share it as the line grows. */
function toSales(tab: StoredTab, requests: readonly Request[]): TabSale[] {
  const bought = requests.filter(({ charged }) => charged > 0n)
  const groups = Map.groupBy(
    bought,
    ({ position, endpointId, acceptedAt }) =>
      `${position} ${endpointId} ${Math.floor(acceptedAt.getTime() / 3_600_000)}`,
  )
  const totals = tab.lines.map(() => 0n)
  return [...groups.values()].map((own) => {
    const { position, providerId, endpointId } = own[0] as Request
    const { split } = tab.lines[position] as StoredTab['lines'][number]
    const before = totals[position] as bigint
    const total = own.reduce((sum, { charged }) => sum + charged, before)
    totals[position] = total
    const feeAmount = platformPart(split, total) - platformPart(split, before)
    return {
      line: position,
      providerId,
      endpointId,
      requests: own.length,
      feeAmount,
      providerAmount: total - before - feeAmount,
      // An hour may have more sales than a call takes arguments.
      acceptedAt: own.reduce((latest, { acceptedAt }) => Math.max(latest, acceptedAt.getTime()), 0),
    }
  })
}

async function readRequests(tabs: TabDatabase, { payer, tabId }: StoredTab): Promise<Request[]> {
  const sql = await tabs.of(payer)
  const rows = await sql<Request[]>`
    select r.sequence::float8 as sequence, i.position, r.price, coalesce(r.charged, r.price) as charged,
      i.provider_id as "providerId", i.endpoint_id as "endpointId", r.accepted_at as "acceptedAt", r.signature
    from tabs.request r
    join tabs.item i on i.payer = r.payer and i.tab_id = r.tab_id and i.number = r.item
    where r.payer = ${toBytes(payer)} and r.tab_id = ${tabBytes(tabId)}
    order by r.sequence`
  return [...rows]
}

/** Marks a tab as taken in, once, with its buyer's credit for when it has settled (giveCredits.ts). */
async function markTaken(
  tabs: TabDatabase,
  { payer, tabId }: StoredTab,
  credits: readonly bigint[],
): Promise<void> {
  const sql = await tabs.of(payer)
  const waiting = credits.some((amount) => amount > 0n) ? `{${credits.join()}}` : null
  await sql`
    update tabs.tab set taken_at = now(), credits = ${waiting}::text::bigint[]
    where payer = ${toBytes(payer)} and id = ${tabBytes(tabId)} and taken_at is null`
}

function atLeastZero(amount: bigint): bigint {
  return amount < 0n ? 0n : amount
}
