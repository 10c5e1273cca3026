import type { Hex } from 'viem'
import { type TabDatabase, toBytes } from './tabDatabase.ts'
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

/** Closes the tabs that are due, by one update. @returns how many. */
export async function closeDueTabs(
  { all: sql }: TabDatabase,
  { idleMs, ageMs, earnedTimes, requests, amount, expiryLeadMs, least }: ClosingRules,
  now: Date,
): Promise<number> {
  const [chains, leasts] = [[...least.keys()], [...least.values()].map(String)]
  const closed = await sql`
    update tabs.tab t set closed_at = ${now}, close_reason = due.reason
    from (
      select payer, id, case
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
        where o.closed_at is null
      ) open
    ) due
    where t.payer = due.payer and t.id = due.id and due.reason is not null and t.closed_at is null
    returning t.id`
  return closed.length
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
