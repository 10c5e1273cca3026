import type { PayerState } from '#chain/chainReads'
import type { ServedNetwork } from '#chain/servedNetworks'
import { BaseError } from '#protocol/errors'
import { refusalFor, standingRefusal } from '../acceptance/acceptance.ts'
import type { Allowance, Payers } from '../acceptance/payers.ts'
import type { Database } from '../store/database.ts'
import type { TabKey } from './tabStore.ts'

/** A step of credit is so many times the price that asks for it: most requests touch no payer's row. */
const pricesAStep = 32n

export type ReserveForTab = (
  tab: TabKey,
  price: bigint,
  served: ServedNetwork,
  payers: Payers,
  /** What the chain just said of the payer, where it was asked. */
  state?: PayerState,
) => Promise<bigint>

/**
 * Reserves a step of credit for a tab, of what its payer may owe: by its balance and all else that it owes, and by what it has
 * shown so far.
 *
 * @returns what is reserved for the tab in all, USDC base units.
 * @throws {BaseError} `tab_limit_exceeded`, and as an acceptance (acceptance.ts).
 */
export function createReserveForTab(
  database: Database,
  { budget, now }: { budget: bigint; now: () => number },
): ReserveForTab {
  return async (tab, price, served, payers, state) => {
    const { chainId } = served.network
    const day = new Date(now()).toISOString().slice(0, 10)

    /** @returns null: a limit was reached. */
    async function reserve(step: bigint, { limit, tabLimit }: Allowance): Promise<bigint | null> {
      const least = limit === null || (tabLimit !== null && tabLimit < limit) ? tabLimit : limit
      const [row] = await database<[{ reserved: bigint | null }]>`
        select reserve_for_tab(${tab.tabId}, ${chainId}, ${served.token}, ${tab.payer}, ${step}::numeric, ${least}::numeric,
          ${budget}::numeric, ${day}::date) as reserved`
      return row.reserved
    }

    for (const read of [payers.allowance, payers.freshAllowance]) {
      const allowance = await read(tab.payer, state)
      const refusal = standingRefusal(allowance)
      if (refusal) {
        if (read === payers.freshAllowance) throw refusal
        continue
      }
      const reserved = (await reserve(price * pricesAStep, allowance)) ?? (await reserve(price, allowance))
      if (reserved !== null) return reserved
      if (
        read === payers.freshAllowance &&
        allowance.limit !== null &&
        allowance.unsettled + price > allowance.available
      )
        throw refusalFor(allowance, price)
    }
    throw new BaseError('tab_limit_exceeded')
  }
}
