import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Address } from 'viem'
import { type TabDatabase, toBytes } from './tabDatabase.ts'

/**
 * Most open tabs of a payer. A client keeps one at a gateway. The chain is asked about each open tab every few seconds, however little
 * is on it, so a wallet with 1 USDC must not hold thousands.
 */
export const maxOpenTabs = 100
/** For how long a tab that was let in may not be stored yet. */
const openingMs = 2_000
const maxPayers = 10_000

/**
 * Creates the function that refuses a payer's next tab. Call it once the payer's signature was checked, or strangers could use up
 * another payer's limit.
 *
 * It counts the stored tabs of all processes, and those that this process let in but hasn't stored yet. So if a payer opens many at once, each
 * of n processes may let in {@link maxOpenTabs}: he has at most n times as many. That suffices to bound what the chain is asked, so an
 * opening needn't lock the payer's row.
 *
 * @throws {BaseError} `tab_limit_exceeded`
 */
export function createOpenTabLimit(
  database: TabDatabase,
  now: () => number = Date.now,
): (tab: { payer: Address; tabId: string }) => Promise<void> {
  const lately = new Map<Address, { tabId: string; at: number }[]>()

  return async ({ payer, tabId }) => {
    const opening = (lately.get(payer) ?? []).filter(({ at }) => at + openingMs > now())
    if (lately.size >= maxPayers) lately.delete(lately.keys().next().value as Address)
    lately.delete(payer)
    lately.set(payer, [...opening, { tabId, at: now() }])
    const sql = await database.of(payer)
    const key = toBytes(payer)
    const ids = opening.map((one) => one.tabId)
    // By the index of open tabs: a payer has many more that are closed. Those that are being opened may be stored already.
    const [row] = await sql<[{ count: number }]>`
      select count(*)::int as count from (
        select from tabs.tab
        where closed_at is null and (payer || id) between ${key} and ${key} || ${lastId}::bytea
          and 'tab_' || encode(id, 'hex') <> all(${ids}::text[])
        limit ${maxOpenTabs}
      ) open`
    if (row.count + opening.length >= maxOpenTabs)
      throw new BaseError(
        'tab_limit_exceeded',
        `A payer has at most ${maxOpenTabs} open tabs: close some first`,
      )
  }
}

const lastId = Buffer.alloc(16, 0xff)
