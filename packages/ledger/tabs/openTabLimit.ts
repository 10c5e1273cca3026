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
 * opening needn't lock the payer's row. Requests that open the same tab share one answer and count once.
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
    // By the index of open tabs: a payer has many more that are closed. Those that are being opened may be stored already.
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
  /** Rejects if the tab isn't let in. */
  admission: Promise<void>
  /** When it was let in; infinite until then. */
  admittedAt: number
}

const lastId = Buffer.alloc(16, 0xff)
