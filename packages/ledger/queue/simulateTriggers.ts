import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'
import { firedTrigger, mostLeadSeconds, type TriggerSettings, timeTriggerAt } from './triggers.ts'

/** A payment, or a closed tab, that enters the queue. Amounts are USDC base units. */
export type Arrival = {
  /** Unix milliseconds. */
  at: number
  /** The amount that the provider receives. */
  amount: bigint
  /** The amount that the buyer pays. */
  price: bigint
  /** Time since which it counts as waiting, if earlier than `at`: a tab has waited since its first purchase. */
  waitsSince?: number
  /** The wallet that it pays. Default: all pay the same wallet. */
  wallet?: number
}

export type SimulatedBatch = {
  at: number
  trigger: Trigger
  arrivals: readonly Arrival[]
}

/** Authorizations are signed for a day or more, so the expiry trigger never fires before the time trigger. */
const urgentAfterMs = 86_400_000 - mostLeadSeconds * 1000

/**
 * Returns the batches that the triggers would form from payments that arrive at these times. Like the keeper, it calls `firedTrigger` after
 * each arrival and when the oldest payment's time is over. A batch takes all waiting payments, but a high-value payment goes alone.
 *
 * @param arrivals sorted by time.
 * @param costOf returns the cost of settling this many payments, in USDC base units. Above `raisedAboveCost`, the raised thresholds apply.
 * @returns all batches; payments that still wait at the end form the last batch.
 */
export function simulateTriggers(
  arrivals: readonly Arrival[],
  settings: TriggerSettings,
  costOf: (count: number) => bigint,
): SimulatedBatch[] {
  const batches: SimulatedBatch[] = []
  let waiting: Arrival[] = []
  const wallets = new Map<number, { paymentCount: number; amount: bigint }>()
  let oldest = Number.POSITIVE_INFINITY

  const settle = (at: number, trigger: Trigger) => {
    batches.push({ at, trigger, arrivals: waiting })
    waiting = []
    wallets.clear()
    oldest = Number.POSITIVE_INFINITY
  }
  const fired = (now: number): Trigger | null => {
    const queue = {
      ...fullest([...wallets.values()]),
      largestPayment: 0n,
      firstQueuedAt: new Date(oldest),
      firstUrgentAt: BigInt(Math.floor((oldest + urgentAfterMs) / 1000)),
      retryDue: false,
    }
    return firedTrigger(queue, settings, costOf(waiting.length), new Date(now))
  }

  for (const arrival of arrivals) {
    const dueAt = () => timeTriggerAt({ firstQueuedAt: new Date(oldest) }, settings).getTime()
    if (waiting.length > 0 && dueAt() <= arrival.at) settle(dueAt(), 'time')
    if (arrival.price >= settings.highValue) {
      batches.push({ at: arrival.at, trigger: 'high_value', arrivals: [arrival] })
      continue
    }
    waiting.push(arrival)
    oldest = Math.min(oldest, arrival.waitsSince ?? arrival.at)
    const wallet = wallets.get(arrival.wallet ?? 0) ?? { paymentCount: 0, amount: 0n }
    wallets.set(arrival.wallet ?? 0, {
      paymentCount: wallet.paymentCount + 1,
      amount: wallet.amount + arrival.amount,
    })
    const trigger = fired(arrival.at)
    if (trigger !== null) settle(arrival.at, trigger)
  }
  if (waiting.length > 0)
    settle(timeTriggerAt({ firstQueuedAt: new Date(oldest) }, settings).getTime(), 'time')
  return batches
}

/** Returns the maximum of each field over all wallets. If wallets share a batch, the triggers compare these maximums with their thresholds. */
function fullest(wallets: readonly { paymentCount: number; amount: bigint }[]) {
  return wallets.reduce(
    (most, { paymentCount, amount }) => ({
      paymentCount: Math.max(most.paymentCount, paymentCount),
      amount: amount > most.amount ? amount : most.amount,
    }),
    { paymentCount: 0, amount: 0n },
  )
}

/**
 * Generates arrival times of independent buyers: a Poisson process with the same times for the same seed.
 *
 * @returns Unix milliseconds in ascending order, starting at 0.
 */
export function arrivalTimes({
  perDay,
  days,
  seed,
}: {
  perDay: number
  days: number
  seed: number
}): number[] {
  const random = mulberry32(seed)
  const meanMs = 86_400_000 / perDay
  const endsAt = days * 86_400_000
  const times: number[] = []
  for (let at = 0; ; ) {
    at += -Math.log(1 - random()) * meanMs
    if (at >= endsAt) return times
    times.push(at)
  }
}

/** Creates a small generator of uniform numbers in [0, 1), with the same sequence for the same seed. */
export function mulberry32(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
