import type postgres from 'postgres'
import type { Hex } from 'viem'
import type { Database } from '../store/database.ts'
import { type TabDatabase, toBytes, toHex } from './tabDatabase.ts'
import { type TabKey, tabBytes } from './tabStore.ts'

/**
 * When a tab is closed without its buyer. Milliseconds, and USDC base units. Besides, it is closed from four fifths of its payer's credit
 * on.
 */
export type ClosingRules = {
  /** How long nothing was bought on it. */
  idleMs: number
  /** How long it has been open. */
  ageMs: number
  /** How many times as long both may be while its payer has earned the credit for all that is charged on it. */
  earnedTimes: number
  /** Number of requests on it: whoever takes it in reads all of them. */
  requests: number
  /** How much is charged on it. */
  amount: bigint
  /** How long before its expiry: later it might not settle any more. */
  expiryLeadMs: number
  /**
   * By chain id, the least amount with which a tab of one line settles. A smaller tab waits for more, and ends unpaid when it expires. One
   * on which nothing is charged doesn't wait.
   */
  least: ReadonlyMap<number, bigint>
}

/** Why a tab was closed: `tab.close_reason`. */
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
 * Number of tabs that one update closes. After a night without processes very many are due, and one update of all of them would pass the
 * limit of a statement, be undone, and be tried again forever.
 */
export const closedAtOnce = 1_000

/**
 * Closes the tabs that are due, at most {@link closedAtOnce} by an update.
 *
 * @param isOver whether no further update may follow. It is asked after each one.
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
      // Tabs are locked in the order in which requests on them lock them. Citus locks no rows of several shards.
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

/** Formats an array for Postgres, which our client can't send as such. */
function toArray(keys: readonly Uint8Array[]): string {
  return `{${keys.map((key) => `"\\\\x${toHex(key).slice(2)}"`).join()}}`
}

/** Open tabs, each with the reason for which it is due to be closed; null: it isn't due. */
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
      -- It is too small to settle, so it waits for more. Without a charge it has nothing to lose, and others may need its credit.
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
        -- As leastTabAmount computes it. A network that isn't served any more has nothing to settle with.
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

export type OpenTab = TabKey & {
  nonce: Hex
  hasCode: boolean
  /** USDC base units, on all its lines. */
  charged: bigint
  /** Its place among all tabs: by payer, then by tab. */
  key: Uint8Array
}

/** Open tabs on a network, in the order of their payers. */
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

/** Closes tabs, each for its reason. */
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
