import { keccak256 } from '@tollkeeper/chain/keccak256'
import { checkSignaturesHere } from '@tollkeeper/chain/payerSignatures'
import { forEachRow, type OnBadRow, pauseAfter } from '@tollkeeper/runtime/stepBack'
import { atLeastZero } from '@tollkeeper/sdk/protocol/amount'
import { leastTabAmount, providerOfSplit, tabMessage } from '@tollkeeper/sdk/protocol/tab'
import type { Hex } from 'viem'
import { type ClosedTab, takeTabs } from '../acceptance/takeTabs.ts'
import type { Database } from '../store/database.ts'
import { addCredits } from './giveCredits.ts'
import { readTabSales, sumCharges } from './tabCharges.ts'
import { type TabDatabase, toBytes, toHex } from './tabDatabase.ts'
import { type StoredTab, type TabRow, tabBytes, tabColumns, toStoredTab } from './tabStore.ts'
import { endUnpaid } from './unpaidTabs.ts'

export type TakeOptions = {
  /** The ledger. */
  sql: Database
  tabs: TabDatabase
  /** Domain separators of USDC on the served networks, keyed by chain id. */
  separators: ReadonlyMap<number, Hex>
  /** Minimum amount with which a tab of one line settles, keyed by chain id. */
  least: ReadonlyMap<number, bigint>
  limit: number
  now: Date
  onBadRow: OnBadRow
  checkpoint: (name: 'after-tab-taken') => void | Promise<void>
}

type LedgerOptions = Omit<TakeOptions, 'limit' | 'now'>

/** A stored request on a tab. */
type Request = {
  sequence: number
  position: number
  charged: bigint
  signature: Uint8Array
}

type ClosedRow = TabRow & { hasCode: boolean; lastSignature: Uint8Array | null; retries: number }
type ClosedStoredTab = ReturnType<typeof toStoredTab<ClosedRow>>

/** The state that settles. */
type Settling = { sequence: number; amounts: bigint[]; signature: Hex }

/**
 * Imports closed tabs into the ledger, each as a payment. Each tab is first stored in the ledger and then marked in the tab store. If the process
 * crashes in between, the next call imports the tab again with the same result.
 *
 * A tab that can't be imported is retried later, so that it doesn't block the others. A tab that can never become a payment ends unpaid.
 *
 * @returns the number of imported or postponed tabs. If that is `limit`, there may be more.
 */
export async function takeClosedTabs({ tabs, limit, now, ...options }: TakeOptions): Promise<number> {
  const closed = await readClosed(tabs, limit, now)
  const { onBadRow, checkpoint } = options
  let passed = 0
  for (const row of closed) {
    const step = (work: () => Promise<void>) =>
      forEachRow([row], work, (error, { payer, tabId }) => onBadRow('take', error, { payer, tabId }), {
        ask: () => Promise.all([options.sql`select 1`, tabs.all`select 1`]),
      })
    let ending: Ending | undefined
    await step(async () => {
      ending = await takeIntoLedger({ tabs, ...options }, toStoredTab(row))
    })
    if (ending !== undefined) {
      await checkpoint('after-tab-taken')
      const [unmarked] = await step(() => markTaken(tabs, toStoredTab(row), ending as Ending))
      if (unmarked === undefined) {
        passed += 1
        continue
      }
    }
    // If the tab's row is locked, the tab can't be postponed either, so it isn't counted. The next step reads it again, together with other tabs.
    const [stuck] = await step(() => stepBack(tabs, row, now))
    if (stuck === undefined) passed += 1
  }
  return passed
}

async function readClosed({ all: sql }: TabDatabase, limit: number, now: Date): Promise<ClosedRow[]> {
  return sql<ClosedRow[]>`
    select ${tabColumns(sql)}, t.has_code as "hasCode", t.last_signature as "lastSignature", t.retries
    from tabs.tab t
    where t.closed_at is not null and t.taken_at is null and (t.retry_at is null or t.retry_at <= ${now})
    order by coalesce(t.retry_at, t.closed_at) limit ${limit}`
}

/** Postpones a failed tab, so that other closed tabs come first. */
async function stepBack(tabs: TabDatabase, { payer, tabId, retries }: ClosedRow, now: Date): Promise<void> {
  const sql = await tabs.of(payer)
  await sql`
    update tabs.tab set retries = least(retries + 1, 30), retry_at = ${new Date(now.getTime() + pauseAfter(retries + 1))}
    where payer = ${toBytes(payer)} and id = ${tabBytes(tabId)} and taken_at is null`
}

/** The end of a tab: as a payment, or unpaid. */
type Ending = 'payment' | 'unpaid'

async function takeIntoLedger(options: LedgerOptions, tab: ClosedStoredTab): Promise<Ending> {
  const { sql, tabs, least, onBadRow } = options
  const charges = sumCharges(tab.lines)
  const { charged } = charges
  if (charged === 0n || charged < leastTabAmount(least.get(tab.chainId) ?? 0n, tab.lines.length)) {
    await endUnpaid(sql, tab, { ...charges, code: charged === 0n ? null : 'tab_too_small' })
    return 'unpaid'
  }
  const own = await tabs.of(tab.payer)
  const requests = await readRequests(own, tab)
  const sales = await readTabSales(own, tab)
  const settling = chooseState(options, tab, requests)
  const closed: ClosedTab = {
    ...tab,
    payerHasCode: tab.hasCode,
    sequence: settling.sequence,
    signature: settling.signature,
    closeReason: tab.closeReason ?? '',
    openedAt: tab.openedAt.getTime(),
    closedAt: (tab.closedAt as Date).getTime(),
    lines: settling.amounts.map((amount, index) =>
      toLine(tab.lines[index] as StoredTab['lines'][number], amount),
    ),
    sales: sales.filter(({ line }) => line < settling.amounts.length),
  }
  const refused = await takeTabs(sql, [closed])
  if (refused.length === 0) return 'payment'
  const { payer, tabId } = tab
  onBadRow('take', new Error('another payment used the tab’s nonce, so the tab ends unpaid'), {
    payer,
    tabId,
    charged: `${charged}`,
  })
  await endUnpaid(sql, tab, { ...charges, code: 'authorization_used' })
  return 'unpaid'
}

function toLine({ split, charged }: StoredTab['lines'][number], amount: bigint): ClosedTab['lines'][number] {
  const share = 2n ** 48n - 1n
  return {
    payee: providerOfSplit(split),
    providerShare: (split >> 48n) & share,
    platformShare: split & share,
    amount,
    charged: atLeastZero(charged),
  }
}

/**
 * Chooses the state that settles: the newest state if it signs exactly the charges, otherwise an older state that does. Such an older state exists
 * if the later requests were not charged. If no state signs exactly the charges, the newest state settles, and the buyer is credited afterwards with
 * the amount that moved beyond the charges.
 */
function chooseState(
  { separators }: Pick<TakeOptions, 'separators'>,
  tab: ClosedStoredTab,
  requests: readonly Request[],
): Settling {
  const charged = tab.lines.map((line) => atLeastZero(line.charged))
  const amounts = tab.lines.slice(0, tab.signedLines).map((line) => line.signed)
  const newest = {
    sequence: tab.sequence,
    amounts,
    signature: toHex(tab.lastSignature ?? (signatureOf(requests, tab.sequence) as Uint8Array)),
  }
  const separator = separators.get(tab.chainId)
  const isExact = amounts.every((amount, index) => amount === charged[index])
  if (isExact || tab.hasCode || separator === undefined) return newest
  // Purchases that only a credit paid for are also sales on their line, although the line settles nothing.
  const soldLines = requests.reduce(
    (most, { charged, position }) => (charged > 0n ? Math.max(most, position + 1) : most),
    1,
  )
  // The amounts of older states aren't stored. So check for each request, the latest first, whether its signature is for exactly the charges.
  for (const { sequence, signature } of requests.toReversed().slice(0, statesTried)) {
    for (let width = tab.lines.length; width >= soldLines; width--) {
      const amounts = charged.slice(0, width)
      if (isSigned(separator, tab, { sequence, amounts, signature: toHex(signature) }))
        return { sequence, amounts, signature: toHex(signature) }
      // A shorter state would not pay for this line, so try one only if nothing is charged on the line.
      if (amounts[width - 1] !== 0n) break
    }
  }
  return newest
}

function isSigned(
  separator: Hex,
  { chainId, payer, contract, platform, rewardShare, nonce, expiresAt: expiry, lines }: StoredTab,
  { sequence, amounts, signature }: Pick<Settling, 'sequence' | 'amounts' | 'signature'>,
): boolean {
  const own = amounts.map((amount, index) => ({ split: lines[index]?.split as bigint, amount }))
  const terms = { chainId, contract, platform, rewardShare }
  const message = tabMessage(terms, { nonce, payer, sequence, expiry, lines: own }, keccak256)
  return checkSignaturesHere(separator, [{ ...message, signature }])[0] === true
}

/** Maximum number of requests whose state is checked for signing exactly the charges. */
const statesTried = 64

function signatureOf(requests: readonly Request[], sequence: number): Uint8Array | undefined {
  return requests.find((one) => one.sequence === sequence)?.signature
}

async function readRequests(sql: Database, { payer, tabId }: StoredTab): Promise<Request[]> {
  const rows = await sql<Request[]>`
    select r.sequence::float8 as sequence, i.position, coalesce(r.charged, r.price) as charged, r.signature
    from tabs.request r
    join tabs.item i on i.payer = r.payer and i.tab_id = r.tab_id and i.number = r.item
    where r.payer = ${toBytes(payer)} and r.tab_id = ${tabBytes(tabId)}
    order by r.sequence`
  return [...rows]
}

/** Marks a tab as ended, and returns the unused rest of its lines' credits to its buyer. Repeated calls have no effect. */
async function markTaken(
  tabs: TabDatabase,
  { payer, tabId, lines }: StoredTab,
  ending: Ending,
): Promise<void> {
  const unused = lines.map(({ split, charged }) => ({ split, amount: atLeastZero(-charged) }))
  const sql = await tabs.of(payer)
  await sql.begin(async (tx) => {
    const [taken] = await tx<{ chainId: number }[]>`
      update tabs.tab set taken_at = now(), awaits_end = ${ending === 'payment'}
      where payer = ${toBytes(payer)} and id = ${tabBytes(tabId)} and taken_at is null
      returning chain_id as "chainId"`
    await tx`update tabs.item set is_taken = true where payer = ${toBytes(payer)} and tab_id = ${tabBytes(tabId)}`
    if (taken) await addCredits(tx, { payer, chainId: taken.chainId }, unused)
  })
}
