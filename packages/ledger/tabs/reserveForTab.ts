import type { PayerState } from '@tollkeeper/chain/chainReads'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { BaseError, type ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import type { Hex } from 'viem'
import { refusalFor, refusalOfPayer } from '../acceptance/acceptance.ts'
import type { Allowance, Payers } from '../acceptance/payers.ts'
import type { Database } from '../store/database.ts'
import type { Reservation, TabKey } from './tabStore.ts'

/** A tab for which credit is reserved. Its payer has signed for it. */
export type ReservingTab = TabKey & { nonce: Hex }

export type ReserveForTab = (
  tab: ReservingTab,
  price: bigint,
  served: ServedNetwork,
  payers: Payers,
  /** The payer's state on chain, if it was just read. */
  state?: PayerState,
) => Promise<Reservation>

/**
 * Reserves a portion of credit, called a step, for a tab. The payer's balance, other debts and settlements so far limit the step. Concurrent requests
 * of one tab share a step, which covers all of them if the credit is sufficient.
 *
 * @param options.budget maximum that all payers together may borrow in a UTC day beyond their earned credit, in USDC base units. Test networks have
 * a separate budget of the same amount. So unpaid amounts stay below the budgets plus the earned credit, regardless of the number of wallets.
 * @returns the total reserved for the tab. If no more credit is left, this total is unchanged.
 * @throws {BaseError} `tab_limit_exceeded`; `tab_mismatch` if the id or nonce belongs to another tab or payment; `tab_closed` if the tab has ended;
 * and the errors of an acceptance (acceptance.ts).
 */
export function createReserveForTab(
  database: Database,
  { budget, now }: { budget: bigint; now: () => number },
): ReserveForTab {
  const underWay = new Map<string, Promise<Reservation>>()
  const waiting = new Map<string, WaitingStep>()

  async function reserveStep(
    tab: ReservingTab,
    { price, wanted }: { price: bigint; wanted: bigint },
    served: ServedNetwork,
    payers: Payers,
    state?: PayerState,
  ): Promise<Reservation> {
    const { chainId } = served.network
    const day = utcDay(new Date(now()))

    /**
     * Reserves a step within an allowance.
     *
     * @returns null if a limit was reached.
     * @throws {BaseError} if this payer can't open a tab with this id and nonce.
     */
    async function reserve(
      { limit, tabLimit, earnedLimit, credit }: Allowance,
      budget: bigint | null,
    ): Promise<Reservation | null> {
      const least = limit === null || (tabLimit !== null && tabLimit < limit) ? tabLimit : limit
      const [{ verdict, total, lent }] = await database<[Reserved]>`
        select verdict, total, lent from reserve_for_tab(${tab.tabId}, ${chainId}, ${served.token}, ${tab.payer}, ${tab.nonce},
          ${price}::numeric, ${wanted}::numeric, ${least}::numeric, ${earnedLimit}::numeric, ${budget}::numeric, ${day}::date)`
      if (verdict === 'reserved') return { reserved: total ?? 0n, lent: lent ?? 0n, credit }
      if (verdict === 'limit') return null
      const { code, message } = claimRefusals[verdict]
      throw new BaseError(code, message)
    }

    const known = await payers.allowance(tab.payer, state)
    // A payer with earned credit may have earned more by recent settlements that aren't cached yet. Read these before it gets a loan.
    const lendable = known.earnedLimit === null ? budget : null
    const reserved = refusalOfPayer(known) ? null : await reserve(known, lendable)
    if (reserved !== null) return reserved
    const fresh = await payers.freshAllowance(tab.payer, state)
    const refusal = refusalOfPayer(fresh)
    if (refusal) throw refusal
    const again = await reserve(fresh, budget)
    if (again !== null) return again
    const [kept] = await database<[Omit<Reservation, 'credit'>?]>`
      select r.reserved, coalesce((
        select sum(l.amount) from tab_loan l where l.payer = r.payer and l.tab_id = r.tab_id
      ), 0) as lent
      from tab_reservation r
      where r.payer = ${tab.payer} and r.tab_id = ${tab.tabId} and r.chain_id = ${chainId}`
    if (kept) return { ...kept, credit: fresh.credit }
    throw refusalOf(fresh, price)
  }

  return (tab, price, served, ...rest) => {
    // Concurrent requests on the same tab share one step. The key has the network, because a client may use the same tab id on two networks.
    const key = `${served.network.chainId}:${tab.payer}:${tab.tabId}`
    const known = waiting.get(key)
    if (known) {
      known.wanted += price
      return known.step
    }
    const next: WaitingStep = { wanted: price, step: begin() }
    waiting.set(key, next)
    return next.step

    async function begin(): Promise<Reservation> {
      // Requests that arrive while a step is in progress wait for the next step, which covers all of them.
      await underWay.get(key)?.catch(() => {})
      waiting.delete(key)
      const step = reserveStep(tab, { price, wanted: next.wanted }, served, ...rest)
      underWay.set(key, step)
      try {
        return await step
      } finally {
        if (underWay.get(key) === step) underWay.delete(key)
      }
    }
  }
}

/** A step that begins once the current one has ended. */
type WaitingStep = {
  /** The prices of all requests that wait for it, USDC base units. */
  wanted: bigint
  step: Promise<Reservation>
}

/** The result of reserve_for_tab. */
type Reserved = {
  verdict: 'reserved' | 'limit' | keyof typeof claimRefusals
  total: bigint | null
  lent: bigint | null
}

/** Messages that explain why a payer can't have a tab with this id. In each case, its client opens another tab. */
const claimRefusals = {
  ended: { code: 'tab_closed', message: 'The tab has ended: open another one' },
  taken: {
    code: 'tab_mismatch',
    message: 'Another payer or network has a tab with this id: open one with a random id',
  },
  spent: {
    code: 'tab_mismatch',
    message: 'A payment was made with the nonce of this tab: open one with a random id',
  },
} as const satisfies Record<string, { code: ErrorCode; message: string }>

/** Returns the error if not even one price can be reserved: the balance is too low, or the payer has settled too little so far. */
export function refusalOf(allowance: Allowance, price: bigint): BaseError {
  const { limit, unsettled, available } = allowance
  if (limit !== null && unsettled + price > available) return refusalFor(allowance, price)
  return new BaseError('tab_limit_exceeded')
}
