import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Address } from 'viem'
import { type TabDatabase, toBytes } from './tabDatabase.ts'

/**
 * Maximum number of open tabs per payer. A client keeps one open tab at a gateway. We query the chain about each open tab every few seconds, even if
 * its amount is tiny, so a wallet with 1 USDC must not hold thousands.
 */
export const maxOpenTabs = 100
/** Maximum time in ms from a tab's admission until it is stored. */
const openingMs = 2_000
const maxPayers = 10_000

/**
 * Creates the function that refuses a tab beyond the payer's limit. Call it only after the payer's signature was checked, because otherwise
 * anyone could use up another payer's limit.
 *
 * It counts the stored tabs of all processes, and those that this process admitted but hasn't stored yet. So if a payer opens many tabs at
 * the same time, each of n processes may admit {@link maxOpenTabs}, which is n times as many in total. That is enough to bound the queries
 * to the chain, so opening a tab doesn't need to lock the payer's row. Requests that open the same tab share one answer and count once.
 *
 * @throws {BaseError} `tab_limit_exceeded`
 */
export function createOpenTabLimit(
  database: TabDatabase,
  now: () => number = Date.now,
): (tab: { payer: Address; tabId: string }) => Promise<void> {
  const lately = new Map<Address, Map<string, Opening>>()

  return async ({ payer, tabId }) => {
    const openings = lately.get(payer) ?? new Map<string, Opening>()
    lately.delete(payer)
    if (lately.size >= maxPayers) lately.delete(lately.keys().next().value as Address)
    lately.set(payer, openings)
    for (const [id, { admittedAt }] of openings) if (admittedAt + openingMs <= now()) openings.delete(id)
    const known = openings.get(tabId)
    const opening = known ?? {
      admission: requireRoom(payer, tabId, [...openings.keys()]),
      admittedAt: Number.POSITIVE_INFINITY,
    }
    openings.set(tabId, opening)
    try {
      await opening.admission
      opening.admittedAt = now()
    } catch (error) {
      openings.delete(tabId)
      throw error
    }
  }

  /** @param opening other tabs that this process is opening. */
  async function requireRoom(payer: Address, tabId: string, opening: readonly string[]): Promise<void> {
    const sql = await database.of(payer)
    const key = toBytes(payer)
    // This uses the index of open tabs, because a payer has many more closed tabs. Tabs that are being opened may already be stored.
    const [row] = await sql<[{ count: number }]>`
      select count(*)::int as count from (
        select from tabs.tab
        where closed_at is null and (payer || id) between ${key} and ${key} || ${lastId}::bytea
          and 'tab_' || encode(id, 'hex') <> all(${[...opening, tabId]}::text[])
        limit ${maxOpenTabs}
      ) open`
    if (row.count + opening.length >= maxOpenTabs)
      throw new BaseError(
        'tab_limit_exceeded',
        `A payer has at most ${maxOpenTabs} open tabs: close some first`,
      )
  }
}

/** A tab that this process is opening. */
type Opening = {
  /** Rejects if the tab isn't admitted. */
  admission: Promise<void>
  /** When it was admitted; infinite until then. */
  admittedAt: number
}

const lastId = Buffer.alloc(16, 0xff)
