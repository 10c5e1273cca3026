import { leastTabAmount } from '@tollkeeper/sdk/protocol/tab'
import type postgres from 'postgres'
import type { Hex } from 'viem'
import type { Database } from '../store/database.ts'
import { type TabDatabase, toBytes, toHex } from './tabDatabase.ts'
import { type TabKey, tabBytes } from './tabStore.ts'

/**
 * Limits at which a tab is closed without its buyer, in milliseconds and USDC base units. In addition, a tab is closed once it uses four
 * fifths of its payer's credit.
 */
export type ClosingRules = {
  /** Time since the last purchase. */
  idleMs: number
  /** Time since it was opened. */
  ageMs: number
  /** Factor for `idleMs` and `ageMs` while the payer's earned credit covers all charges on the tab. */
  earnedTimes: number
  /** Maximum number of requests on the tab: the ledger reads all of them when it imports the tab. */
  requests: number
  /** Amount charged on it. */
  amount: bigint
  /** Time before its expiry. A tab that closes later might not settle in time. */
  expiryLeadMs: number
  /**
   * Minimum amount with which a tab of one line settles, keyed by chain id. A smaller tab waits for more purchases, and ends unpaid when it
   * expires. A tab without charges doesn't wait.
   */
  least: ReadonlyMap<number, bigint>
}

/** Reasons why a tab was closed: `tab.close_reason`. */
export type CloseReason =
  | 'buyer'
  | 'idle'
  | 'old'
  | 'amount'
  | 'count'
  | 'credit'
  | 'expiring'
  | 'balance'
  | 'code'
  | 'authorization_used'

/**
 * Maximum number of tabs that one update closes. If no process ran for a night, very many tabs are due. A single update of all of them would exceed
 * the statement's time limit, be rolled back, and be retried forever.
 */
export const closedAtOnce = 1_000

/**
 * Closes due tabs, at most {@link closedAtOnce} per update.
 *
 * @param isOver returns whether to stop. It is called after each update.
 * @returns whether more tabs may be due.
 */
export async function closeDueTabs(
  { all: sql, isCluster }: TabDatabase,
  rules: ClosingRules,
  now: Date,
  isOver: () => boolean = () => false,
): Promise<boolean> {
  let after: Uint8Array = Buffer.alloc(0)
  for (;;) {
    const page = await sql<{ key: Uint8Array }[]>`
      select key from (${dueTabs(sql, rules, now, sql`o.payer || o.id > ${after}`)}) due
      where reason is not null order by key limit ${closedAtOnce}`
    if (page.length > 0) {
      const keys = sql`o.payer || o.id = any(${toArray(page.map(({ key }) => key))}::text::bytea[])`
      // Lock tabs in the same order as requests do. Citus can't lock rows of several shards.
      const locks = isCluster ? sql`` : sql`order by o.payer || o.id for update of o skip locked`
      await sql`
        update tabs.tab t set closed_at = ${now}, close_reason = due.reason
        from (${dueTabs(sql, rules, now, keys, locks)}) due
        where t.payer = due.payer and t.id = due.id and due.reason is not null and t.closed_at is null`
    }
    if (page.length < closedAtOnce) return false
    if (isOver()) return true
    after = (page.at(-1) as { key: Uint8Array }).key
  }
}

/** Formats an array as text for Postgres, because our client can't send arrays of this type. */
function toArray(keys: readonly Uint8Array[]): string {
  return `{${keys.map((key) => `"\\\\x${toHex(key).slice(2)}"`).join()}}`
}

/** Returns open tabs, each with the reason why it is due to be closed; null if it isn't due. */
function dueTabs(
  sql: Database,
  { idleMs, ageMs, earnedTimes, requests, amount, expiryLeadMs, least }: ClosingRules,
  now: Date,
  which: postgres.PendingQuery<postgres.Row[]>,
  locks = sql``,
) {
  const [chains, leasts] = [[...least.keys()], [...least.values()].map(String)]
  return sql`
    select payer, id, payer || id as key, case
      when expires_at < ${Math.ceil((now.getTime() + expiryLeadMs) / 1000)}::bigint then 'expiring'
      -- A tab that is too small to settle waits for more purchases. A tab without charges doesn't wait, because it has nothing to lose and
      -- other tabs may need its credit.
      when charged > 0 and charged < least then null
      when charged >= ${amount} then 'amount'
      when requests >= ${requests} then 'count'
      when charged > 0 and charged * 5 >= credit * 4 then 'credit'
      when used_at < ${now}::timestamptz - times * ${idleMs} * interval '1 ms' then 'idle'
      when opened_at < ${now}::timestamptz - times * ${ageMs} * interval '1 ms' then 'old'
    end as reason
    from (
      select o.payer, o.id, o.requests, o.expires_at, o.used_at, o.opened_at, o.credit, bought.charged,
        case when bought.charged between 1 and o.reserved - o.lent then ${earnedTimes}::integer else 1 end as times,
        -- This must compute the same minimum as leastTabAmount. On a network that isn't served any more, no tab can settle.
        coalesce(minimum + minimum * greatest(0, cardinality(o.charged) - 1) / 5, 9223372036854775807) as least
      from tabs.tab o
      cross join lateral (select sum(greatest(one, 0)) as charged from unnest(o.charged) one) bought
      cross join lateral (
        select (${leasts}::bigint[])[array_position(${chains}::integer[], o.chain_id)] as minimum
      ) network
      where o.closed_at is null and ${which}
      ${locks}
    ) open`
}

/** The fields that decide when an open tab is closed without its buyer. */
export type ClosingTab = {
  chainId: number
  openedAt: Date
  usedAt: Date
  /** Unix seconds. */
  expiresAt: number
  requests: number
  /** USDC base units charged on all lines, and the number of lines. */
  charged: bigint
  lines: number
  /** USDC base units: credit reserved for it, the part of it that is lent, and the maximum that its payer may owe on all tabs. */
  reserved: bigint
  lent: bigint
  credit: bigint | null
}

/**
 * Returns when and why a tab will be closed if there are no further purchases. The result agrees with {@link closeDueTabs}, which closes the
 * tab soon after that time.
 */
export function closingTimeOf(
  { chainId, openedAt, usedAt, expiresAt, requests, charged, lines, reserved, lent, credit }: ClosingTab,
  rules: ClosingRules,
): { at: Date; reason: CloseReason } {
  const expiring = { at: new Date(expiresAt * 1000 - rules.expiryLeadMs), reason: 'expiring' } as const
  const minimum = rules.least.get(chainId)
  const isTooSmall = charged > 0n && (minimum === undefined || charged < leastTabAmount(minimum, lines))
  if (isTooSmall) return expiring
  // These rules don't depend on time, so the tab has been due since its latest request.
  if (charged >= rules.amount) return { at: usedAt, reason: 'amount' }
  if (requests >= rules.requests) return { at: usedAt, reason: 'count' }
  if (charged > 0n && credit !== null && charged * 5n >= credit * 4n) return { at: usedAt, reason: 'credit' }
  const times = charged > 0n && charged <= reserved - lent ? rules.earnedTimes : 1
  const idle = { at: new Date(usedAt.getTime() + times * rules.idleMs), reason: 'idle' } as const
  const old = { at: new Date(openedAt.getTime() + times * rules.ageMs), reason: 'old' } as const
  return [expiring, idle, old].reduce((first, one) => (one.at < first.at ? one : first))
}

export type OpenTab = TabKey & {
  nonce: Hex
  hasCode: boolean
  /** USDC base units, on all its lines. */
  charged: bigint
  /** Sort key of the tab: tabs are ordered by payer, then by id. */
  key: Uint8Array
}

/** Reads open tabs on a network, sorted by payer. */
export async function readOpenTabs(
  { all: sql }: TabDatabase,
  { chainId, after, limit }: { chainId: number; after: Uint8Array; limit: number },
): Promise<OpenTab[]> {
  return sql<OpenTab[]>`
    select '0x' || encode(tab.payer, 'hex') as payer, 'tab_' || encode(id, 'hex') as "tabId", '0x' || encode(nonce, 'hex') as nonce, has_code as "hasCode",
      (select coalesce(sum(greatest(one, 0)), 0) from unnest(charged) one) as charged, tab.payer || id as key
    from tabs.tab where closed_at is null and chain_id = ${chainId} and tab.payer || id > ${after}
    order by tab.payer || id limit ${limit}`
}

/** Closes tabs, each with its reason. */
export async function closeTabs(
  tabs: TabDatabase,
  due: readonly (TabKey & { reason: CloseReason })[],
  now: Date,
): Promise<void> {
  for (const { payer, tabId, reason } of due) {
    const sql = await tabs.of(payer)
    await sql`
      update tabs.tab set closed_at = ${now}, close_reason = ${reason}
      where payer = ${toBytes(payer)} and id = ${tabBytes(tabId)} and closed_at is null`
  }
}
