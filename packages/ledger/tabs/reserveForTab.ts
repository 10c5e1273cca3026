import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { refusalFor, standingRefusal } from '../acceptance/acceptance.ts'
import type { Allowance, Payers } from '../acceptance/payers.ts'
import type { Database } from '../store/database.ts'
import type { TabKey } from './tabStore.ts'

/** How many times the price a step of credit is; the largest that fits. Steps let most requests touch no payer's row. */
const pricesAStep = [32n, 4n, 1n]

export type ReserveForTab = (
  tab: TabKey,
  price: bigint,
  served: ServedNetwork,
  payers: Payers,
  /** What the chain just said of the payer, if it was asked. */
  state?: PayerState,
) => Promise<bigint>

/**
 * Reserves a step of credit for a tab. Its payer's balance, other debts and settlements so far bound it.
 * Requests of one tab at the same time share a step.
 *
 * @param options.budget USDC base units that all payers together may be lent on a UTC day, beyond each one's share of what it
 *   settled. So what is never paid stays below the budgets and these shares, however many wallets there are.
 * @returns what is reserved for the tab in all, USDC base units: no more than before if others reserved the last credit.
 * @throws {BaseError} `tab_limit_exceeded`, and as an acceptance (acceptance.ts).
 */
export function createReserveForTab(
  database: Database,
  { budget, now }: { budget: bigint; now: () => number },
): ReserveForTab {
  const underWay = new Map<string, Promise<bigint>>()

  const reserveStep: ReserveForTab = async (tab, price, served, payers, state) => {
    const { chainId } = served.network
    const day = new Date(now()).toISOString().slice(0, 10)

    /** @returns null if a limit was reached. */
    async function reserve(
      step: bigint,
      { limit, tabLimit, earnedLimit }: Allowance,
      budget: bigint,
    ): Promise<bigint | null> {
      const least = limit === null || (tabLimit !== null && tabLimit < limit) ? tabLimit : limit
      const [row] = await database<[{ reserved: bigint | null }]>`
        select reserve_for_tab(${tab.tabId}, ${chainId}, ${served.token}, ${tab.payer}, ${step}::numeric, ${least}::numeric,
          ${earnedLimit}::numeric, ${budget}::numeric, ${day}::date) as reserved`
      return row.reserved
    }

    async function reserveAny(allowance: Allowance, budget: bigint): Promise<bigint | null> {
      for (const prices of pricesAStep) {
        const reserved = await reserve(price * prices, allowance, budget)
        if (reserved !== null) return reserved
      }
      return null
    }

    const known = await payers.allowance(tab.payer, state)
    // The cached values may lack recent settlements, so a payer who may have earned credit isn't lent any before they are read.
    const lendable = known.earnedLimit === null ? budget : 0n
    const reserved = standingRefusal(known) ? null : await reserveAny(known, lendable)
    if (reserved !== null) return reserved
    const fresh = await payers.freshAllowance(tab.payer, state)
    const refusal = standingRefusal(fresh)
    if (refusal) throw refusal
    const again = await reserveAny(fresh, budget)
    if (again !== null) return again
    const [kept] = await database<{ reserved: bigint }[]>`
      select reserved from tab_reservation where tab_id = ${tab.tabId} and payer = ${tab.payer}`
    if (kept) return kept.reserved
    throw refusalOf(fresh, price)
  }

  return (tab, ...rest) => {
    const known = underWay.get(tab.tabId)
    if (known) return known
    const step = reserveStep(tab, ...rest).finally(() => underWay.delete(tab.tabId))
    underWay.set(tab.tabId, step)
    return step
  }
}

/** Why not even one price can be reserved: the balance is too low, or the payer has settled too little so far. */
export function refusalOf(allowance: Allowance, price: bigint): BaseError {
  const { limit, unsettled, available } = allowance
  if (limit !== null && unsettled + price > available) return refusalFor(allowance, price)
  return new BaseError('tab_limit_exceeded')
}
