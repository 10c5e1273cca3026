import type { HalfState } from '../facts/halves.ts'
import type { PaymentResult } from '../queue/stages.ts'

/** Facts from the database and the record about a payment that is in no batch and isn't finalized. */
export type PaymentFacts = {
  provider: HalfFacts
  /** Null if the payment has no fee half. */
  fee: HalfFacts | null
  /** The highest block in which one of its halves was used or cancelled; null if none was. */
  lastBlock: bigint | null
  /** Its result, if that isn't final; null if it is in the queue. */
  ended: PaymentResult | null
  failureCode: string | null
}

/** `validBefore`: Unix seconds. */
export type HalfFacts = { state: HalfState; validBefore: bigint }

/** The chain's progress as the index has read it. */
export type ChainFacts = {
  /** The highest block that no reorg is expected to drop. */
  safeBlock: bigint
  /** Unix seconds of the indexed head: all earlier blocks have been read. */
  blockTime: bigint
}

/**
 * The next step for a payment.
 *
 * - `leave`: nothing for now
 * - `spend`: no part of it is left to settle, but a reorg may still change that. It leaves the queue, and is finalized or reopened later
 * - `reopen`: a reorg reverted a half, which is to be settled again
 * - `fail`: its provider won't be paid and is notified
 * - `finalize`: no part of it can move any more, and the parts that moved are final. `code` is the reason for a missing fee
 * - `unvoid`: the provider voided the payment but settled the provider's half, so the payment counts again and its fee is owed
 * - `wipe`: it was voided and can no longer be settled, so it is finalized and its signatures are deleted
 *
 * `ifUnused`: the step applies only if a query to the chain shows that the open halves are unused. They have expired, so they stay unused.
 */
export type Finalization =
  | { action: 'leave' | 'unvoid' }
  | { action: 'reopen' }
  | { action: 'spend' }
  | { action: 'fail'; code: string; detail: string; ifUnused: boolean }
  | { action: 'finalize'; code: string | null; ifUnused: boolean }
  | { action: 'wipe'; ifUnused: boolean }

const leave: Finalization = { action: 'leave' }

/** A payment with its next step. */
export type Decided<Payment> = { payment: Payment; finalization: Finalization }

/** Decides which payments outside the keeper's batches are finalized or reopened. The others are left out. */
export function decideFinalizations<Payment extends PaymentFacts>(
  payments: readonly Payment[],
  chain: ChainFacts,
): Decided<Payment>[] {
  return payments
    .map((payment) => ({ payment, finalization: decideFinalization(payment, chain) }))
    .filter(({ finalization }) => finalization.action !== 'leave')
}

/** Decides the next step for a payment outside the keeper's batches. All such decisions are made here. */
export function decideFinalization(
  payment: PaymentFacts,
  { safeBlock, blockTime }: ChainFacts,
): Finalization {
  const { provider, fee, lastBlock, ended, failureCode } = payment
  const isFailed = ended === 'failed'
  const halves = fee === null ? [provider] : [provider, fee]
  const open = halves.filter(({ state }) => state === 'open')
  const isOver = open.every(({ validBefore }) => validBefore <= blockTime)
  const ifUnused = open.length > 0
  if (ended === 'voided') {
    if (provider.state === 'settled') return { action: 'unvoid' }
    return isOver ? { action: 'wipe', ifUnused } : leave
  }

  // If the provider's part can't settle, the fee isn't settled either: no payer is charged only the fee.
  const unsettleable = unsettleableBy(provider.state)
  const isLost = unsettleable !== null || (provider.state === 'open' && provider.validBefore <= blockTime)
  if (!isOver && !isLost) return ended === 'spent' ? { action: 'reopen' } : leave
  // Nothing is left to settle, so the payment leaves the queue, and waits until its last event is final.
  if (lastBlock !== null && lastBlock > safeBlock) {
    return ended === null ? { action: 'spend' } : leave
  }
  if (!isFailed && unsettleable !== null) return { action: 'fail', ...unsettleable, ifUnused: false }
  if (!isFailed && provider.state === 'open') return { action: 'fail', ...expired(failureCode), ifUnused }
  // Anyone who has the signatures may still settle the fee.
  if (!isOver) return leave
  if (isFailed) return { action: 'finalize', code: failureCode, ifUnused }
  if (fee === null || fee.state === 'settled') return { action: 'finalize', code: null, ifUnused }
  return { action: 'finalize', code: (unsettleableBy(fee.state) ?? expired(failureCode)).code, ifUnused }
}

function unsettleableBy(state: HalfState): { code: string; detail: string } | null {
  if (state === 'cancelled') return { code: 'authorization_cancelled', detail: 'cancelled by the payer' }
  if (state === 'foreign_use')
    return { code: 'authorization_used', detail: 'its nonce paid for something else' }
  return null
}

/** Returns the last attempt's failure as the reason why the payment wasn't settled in time. */
function expired(failureCode: string | null): { code: string; detail: string } {
  return { code: failureCode ?? 'authorization_expired', detail: 'not settled before validBefore' }
}
