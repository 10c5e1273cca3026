import { type Environment, readVariable } from '@tollkeeper/runtime/env'
import type { Trigger } from '@tollkeeper/sdk/protocol/settlement'

/**
 * The waiting payments that could be claimed now, as the triggers see them. If several provider wallets share a batch, each
 * field has the most of any of them: a trigger that one has fired is fired.
 */
export type WaitingPayments = {
  paymentCount: number
  /** What the wallet will receive, USDC base units. */
  amount: bigint
  /** The greatest payment among them, both halves together, USDC base units. */
  largestPayment: bigint
  /** Acceptance of the oldest one. */
  firstQueuedAt: Date
  /** Unix seconds at which the first of them must be on its way (`queue.urgent_at`: packages/ledger/migrations/0001_schema.sql). */
  firstUrgentAt: bigint
  /** One of them failed before and its retry is due. */
  retryDue: boolean
  /** Triggers count some of them only at an age of `minAgeMs`, because their seller has a middleware of its own. Default: none. */
  mayBeVoided?: boolean
}

export type TriggerSettings = ReturnType<typeof readTriggerSettings>

/**
 * Thresholds of the triggers; the api reads them too, for its estimates.
 *
 * @throws {ConfigError}
 */
export function readTriggerSettings(env: Environment) {
  const amount = readVariable(env, 'TRIGGER_AMOUNT_USDC')
  const count = readVariable(env, 'TRIGGER_COUNT')
  return {
    amount,
    count,
    /** The thresholds while settling is expensive, in the proportion of their defaults: 2 USD to 1, 150 payments to 100. */
    raisedAmount: 2n * amount,
    raisedCount: Math.ceil(1.5 * count),
    /** Cost of settling what is queued, USDC base units, above which the raised thresholds apply. */
    raisedAboveCost: 20_000n,
    timeMs: readVariable(env, 'TRIGGER_TIME_SECONDS') * 1000,
    highValue: readVariable(env, 'TRIGGER_HIGH_VALUE_USDC'),
    /**
     * How old a payment must be for `amount`, `count` and `time` if its seller has a middleware of its own: one that never heard that it
     * was accepted has voided it by then. With our middleware the triggers count a payment at once. It asks the gateway again for as
     * long as its request lasts, and then serves; a payment that it voids later is refused with `payment_claimed` if a batch has it.
     */
    minAgeMs: readVariable(env, 'TRIGGER_MIN_AGE_SECONDS') * 1000,
    /** How long POST /settle gathers others for its batch. */
    windowMs: 250,
    /**
     * Number, or age, of payments from which the next batch sweeps a splitter. That is 21,000 gas: ten payments share it, and
     * nobody's money waits for more than a day.
     */
    sweepCount: 10,
    sweepAfterMs: 86_400_000,
  }
}

/** The triggers of conformance 8.1, and `expiry`. packages/runtime/variables.ts has most of them as defaults. */
export const defaultTriggers = readTriggerSettings({})

/** How many seconds before it expires a payment must be on its way at the latest; `urgent_at` has the same 900. */
export const mostLeadSeconds = 900

const sendLeadMs = 60_000

// If several have fired, the first of these names the batch: what can't wait comes first, then the order of
// conformance 8.1.
const precedence = ['high_value', 'expiry', 'amount', 'count', 'time'] as const

/**
 * The trigger that has fired, or null.
 *
 * @param estimatedCost USDC base units that settling all that is queued would cost now.
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
    // A retry has waited out its own delay, so it doesn't wait for the wallet's next batch, too.
    time: queue.retryDue || now >= timeTriggerAt(queue, settings),
  }
  return precedence.find((trigger) => fired[trigger]) ?? null
}

/**
 * When the time trigger fires: before `timeMs` is over, so that the transaction is sent within it, even if another batch of the
 * wallet or a slow node delays it.
 */
export function timeTriggerAt({ firstQueuedAt }: { firstQueuedAt: Date }, { timeMs }: TriggerSettings): Date {
  return new Date(firstQueuedAt.getTime() + timeMs - Math.min(sendLeadMs, timeMs / 10))
}

/**
 * When a wallet's queue settles at the latest, if nothing else is queued.
 *
 * @param estimatedCost what a keeper last saw that settling would cost, USDC base units (`settlingCost.ts`).
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
