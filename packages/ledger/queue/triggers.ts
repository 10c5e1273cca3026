import { type Environment, readVariable } from '@tollkeeper/runtime/env'
import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'

/**
 * The waiting payments that could be claimed now, as the triggers see them. If several provider wallets share a batch, each field has the
 * maximum over the wallets, so that a trigger fires if it fires for any of them.
 */
export type WaitingPayments = {
  paymentCount: number
  /** The amount that the wallet will receive, in USDC base units. */
  amount: bigint
  /** The largest payment among them, both halves together, in USDC base units. */
  largestPayment: bigint
  /** Acceptance time of the oldest payment. */
  firstQueuedAt: Date
  /** Unix seconds at which the most urgent payment must be sent (`queue.urgent_at`: packages/ledger/migrations/0001_schema.sql). */
  firstUrgentAt: bigint
  /** Whether a payment failed before and its retry is due. */
  retryDue: boolean
  /** Whether triggers count some payments only at an age of `minAgeMs`, because their seller has its own middleware. Default false. */
  mayBeVoided?: boolean
}

export type TriggerSettings = ReturnType<typeof readTriggerSettings>

/**
 * Reads the thresholds of the triggers, which the api also uses for its estimates.
 *
 * @throws {ConfigError}
 */
export function readTriggerSettings(env: Environment) {
  const amount = readVariable(env, 'TRIGGER_AMOUNT_USDC')
  const count = readVariable(env, 'TRIGGER_COUNT')
  return {
    amount,
    count,
    /**
     * The higher thresholds while settling is expensive: twice the amount, and 1.5 times the number. By default, these are 2 USD and 150 payments.
     */
    raisedAmount: 2n * amount,
    raisedCount: Math.ceil(1.5 * count),
    /** Cost of settling the queued payments, in USDC base units, above which the raised thresholds apply. */
    raisedAboveCost: 20_000n,
    timeMs: readVariable(env, 'TRIGGER_TIME_SECONDS') * 1000,
    highValue: readVariable(env, 'TRIGGER_HIGH_VALUE_USDC'),
    /**
     * Age in ms from which a payment counts for the triggers `amount`, `count` and `time` if its seller has its own middleware. If that middleware
     * never received the acceptance, it has voided the payment by then.
     *
     * A payment through our middleware counts immediately. Our middleware rarely voids a payment, because it repeats an unanswered call to the
     * gateway until the call's time limit. If our middleware voids a payment that a batch has claimed, the gateway refuses the void with
     * `payment_claimed`.
     */
    minAgeMs: readVariable(env, 'TRIGGER_MIN_AGE_SECONDS') * 1000,
    /** Time in ms for which POST /settle waits for more payments for its batch. */
    windowMs: 250,
    /**
     * A splitter is swept by the next batch once it holds this many payments, or once its oldest payment is this old. A sweep takes 21,000
     * gas: ten payments share it, and no one's money waits for more than a day.
     */
    sweepCount: 10,
    sweepAfterMs: 86_400_000,
  }
}

/** The default triggers of conformance 8.1, and `expiry`. Most of the values are in packages/runtime/variables.ts. */
export const defaultTriggers = readTriggerSettings({})

/** Maximum seconds before expiry at which a payment becomes urgent; the column `urgent_at` uses the same number. */
export const mostLeadSeconds = 900

const sendLeadMs = 60_000

// If several triggers have fired, the batch is named after the trigger that comes first in this list. The triggers that can't wait come first, then
// the other triggers in the order of conformance 8.1.
const precedence = ['high_value', 'expiry', 'amount', 'count', 'time'] as const

/**
 * Returns the trigger that has fired, or null.
 *
 * @param estimatedCost current cost of settling all queued payments, in USDC base units.
 */
export function firedTrigger(
  queue: WaitingPayments,
  settings: TriggerSettings,
  estimatedCost: bigint,
  now: Date,
): Trigger | null {
  if (queue.paymentCount === 0 && !queue.retryDue) return null
  const isRaised = estimatedCost > settings.raisedAboveCost
  const fired: Record<(typeof precedence)[number], boolean> = {
    high_value: queue.largestPayment >= settings.highValue,
    expiry: Number(queue.firstUrgentAt) * 1000 <= now.getTime(),
    amount: queue.amount >= (isRaised ? settings.raisedAmount : settings.amount),
    count: queue.paymentCount >= (isRaised ? settings.raisedCount : settings.count),
    // A retry has already waited for its delay, so it doesn't also wait for the wallet's next batch.
    time: queue.retryDue || now >= timeTriggerAt(queue, settings),
  }
  return precedence.find((trigger) => fired[trigger]) ?? null
}

/**
 * Returns when the time trigger fires: before `timeMs` is over, so that the transaction is sent in time even if another batch of the wallet
 * or a slow node delays it.
 */
export function timeTriggerAt({ firstQueuedAt }: { firstQueuedAt: Date }, { timeMs }: TriggerSettings): Date {
  return new Date(firstQueuedAt.getTime() + timeMs - Math.min(sendLeadMs, timeMs / 10))
}

/**
 * Returns the latest time at which a wallet's queue settles if no more payments are queued.
 *
 * @param estimatedCost the latest cost of settling that a keeper recorded, in USDC base units (`settlingCost.ts`).
 */
export function estimatedSettlement(
  queue: WaitingPayments,
  settings: TriggerSettings,
  estimatedCost: bigint,
  now: Date,
): Date {
  const fired = firedTrigger(queue, settings, estimatedCost, now)
  if (fired === 'high_value' || fired === 'expiry') return now
  const first = queue.firstQueuedAt.getTime()
  const by = fired ? now.getTime() : first + settings.timeMs
  const minAgeMs = queue.mayBeVoided ? settings.minAgeMs : 0
  return new Date(Math.min(Math.max(by, first + minAgeMs), Number(queue.firstUrgentAt) * 1000))
}
