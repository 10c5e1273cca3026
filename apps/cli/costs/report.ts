import {
  gasCostOfPayment,
  type PaymentKind,
  picoUsdPerUnit,
  type UnitPrices,
} from '@tollkeeper/chain/typicalGas'
import { type Arrival, arrivalTimes, simulateTriggers } from '@tollkeeper/ledger/queue/simulateTriggers'
import type { TriggerSettings } from '@tollkeeper/ledger/queue/triggers'
import {
  breakEvenPrice,
  type FeeSchedule,
  type Split,
  splitAnyPrice,
  tabPercentage,
} from '@tollkeeper/sdk/protocol/tier'

/**
 * The costs of a price. USDC amounts are base units. Gas is in 10^-12 USD, because the gas of a request on a tab costs less than
 * a base unit.
 */
export type CostReport = {
  split: Split
  /** Costs by kind of payment and by the number of payments of that kind in the transaction. */
  payments: readonly CostRow[]
  /** Costs in the batches that a keeper would send, according to a simulation with `perDay` payments and the keeper's `triggers`. */
  expected: readonly (CostRow & { kind: 'two_signatures' | 'one_signature'; minutes: number })[]
  /** Costs for payments with one signature, according to the same simulation with several values of TRIGGER_TIME_SECONDS. */
  waiting: readonly (CostRow & { seconds: number; minutes: number; savedADay: bigint })[]
}

export type CostRow = {
  kind: PaymentKind
  /** Number of payments of this kind in the transaction; for tabs, the number of tabs. */
  sharing: number
  /** Number of requests on the tab; 1 for a payment. */
  requests: number
  /** Gas of a payment, or of one request on a tab. */
  gas: bigint
  /** The platform's fee minus the gas. */
  operator: bigint
  /** The lowest price such that its fee, and the fee of every higher price, covers this gas. */
  breakEven: bigint
}

export type CostOptions = {
  /** USDC base units. */
  price: bigint
  perDay: number
  prices: UnitPrices
  schedule: FeeSchedule
  triggers: TriggerSettings
}

const shares = [1, 10, 100] as const
const requestsOnTab = [10, 100, 1_000] as const
const waits = [60, 600, 3_600, 21_600, 86_400] as const
/** Maximum number of payments to simulate. It gives enough days for a steady average, and a quick result. */
const mostPayments = 100_000
const mostDays = 30

export function reportCosts({ price, perDay, prices, schedule, triggers }: CostOptions): CostReport {
  const split = splitAnyPrice(price, schedule)
  const row = (kind: PaymentKind, sharing: number, requests = 1): CostRow => {
    const gas = gasCostOfPayment(kind, sharing, prices, requests)
    const operator = split.feeAmount * picoUsdPerUnit - gas
    return { kind, sharing, requests, gas, operator, breakEven: breakEvenPrice(gas, schedule) }
  }
  const days = Math.max(1, Math.min(mostDays, Math.floor(mostPayments / perDay)))
  const arrivals = arrivalTimes({ perDay, days, seed: perDay }).map((at): Arrival => {
    return { at, price, amount: split.providerAmount }
  })
  const simulate = (kind: 'two_signatures' | 'one_signature', settings: TriggerSettings) => {
    const costOf = (count: number) => (gasCostOfPayment(kind, count, prices) * BigInt(count)) / picoUsdPerUnit
    const batches = simulateTriggers(arrivals, settings, costOf)
    const gas = batches.reduce((sum, batch) => {
      const count = batch.arrivals.length
      return sum + gasCostOfPayment(kind, count, prices) * BigInt(count)
    }, 0n)
    const waited = batches.reduce((sum, batch) => {
      return sum + batch.arrivals.reduce((all, one) => all + batch.at - one.at, 0)
    }, 0)
    const count = Math.max(1, arrivals.length)
    return {
      ...row(kind, Math.round(arrivals.length / Math.max(1, batches.length)) || 1),
      gas: gas / BigInt(count),
      operator: split.feeAmount * picoUsdPerUnit - gas / BigInt(count),
      breakEven: breakEvenPrice(gas / BigInt(count), schedule),
      minutes: waited / count / 60_000,
    }
  }
  const alone = gasCostOfPayment('one_signature', 1, prices)
  return {
    split,
    payments: [
      ...shares.map((sharing) => row('two_signatures', sharing)),
      ...shares.map((sharing) => row('one_signature', sharing)),
      // If the fee of a price has a fixed part, requests at this price can't be bought on a tab.
      ...(tabPercentage(price, schedule) === undefined ? [] : requestsOnTab).map((requests) =>
        row('tab', 1, requests),
      ),
    ],
    expected: [
      { ...simulate('two_signatures', triggers), kind: 'two_signatures' },
      { ...simulate('one_signature', triggers), kind: 'one_signature' },
    ],
    waiting: waits.map((seconds) => {
      const found = simulate('one_signature', { ...triggers, timeMs: seconds * 1000 })
      return { ...found, seconds, savedADay: (alone - found.gas) * BigInt(perDay) }
    }),
  }
}
