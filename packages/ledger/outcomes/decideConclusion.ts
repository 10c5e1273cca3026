import type { HalfState } from '../facts/halves.ts'
import type { OutcomeKind } from '../queue/stages.ts'

/** What the database and the recorded chain say of a payment in no batch that isn't concluded. */
export type PaymentFacts = {
  provider: HalfFacts
  /** null: the payment has no fee half. */
  fee: HalfFacts | null
  /** The highest block that used or cancelled one of its halves; null: none did. */
  lastBlock: bigint | null
  /** How it ended, if not finally; null: it is in the queue. */
  ended: OutcomeKind | null
  failureCode: string | null
}

/** `validBefore`: Unix seconds. */
export type HalfFacts = { state: HalfState; validBefore: bigint }

/** How far the chain has come, as the index has read it. */
export type ChainFacts = {
  /** The highest block that no reorg is expected to take. */
  safeBlock: bigint
  /** Unix seconds of the indexed head: every earlier block was read. */
  blockTime: bigint
}

/**
 * What to do with a payment.
 *
 * - `leave`: nothing, for now
 * - `spend`: nothing of it is left to settle; it leaves the queue until that is final
 * - `reopen`: a reorg gave a half back, which is to be settled again
 * - `fail`: its provider won't be paid; the provider is told
 * - `conclude`: nothing of it can move any more, and what moved is final; `code` says why a fee is missing
 * - `unvoid`: the provider voided it but took its half: it counts again, and its fee is owed
 * - `wipe`: it was voided, and nobody can settle it any more: it is concluded, and its signatures are deleted
 *
 * `ifUnused`: only if the chain itself says that the open halves are unused. They have expired, so they stay unused.
 */
export type Conclusion =
  | { action: 'leave' | 'unvoid' }
  | { action: 'reopen' }
  | { action: 'spend' }
  | { action: 'fail'; code: string; detail: string; ifUnused: boolean }
  | { action: 'conclude'; code: string | null; ifUnused: boolean }
  | { action: 'wipe'; ifUnused: boolean }

const leave: Conclusion = { action: 'leave' }

/** A payment, and what follows for it. */
export type Decided<Payment> = { payment: Payment; conclusion: Conclusion }

/** Decides for payments in none of the keeper's batches which of them end or are reopened; the others are left out. */
export function decideConclusions<Payment extends PaymentFacts>(
  payments: readonly Payment[],
  chain: ChainFacts,
): Decided<Payment>[] {
  return payments
    .map((payment) => ({ payment, conclusion: decideConclusion(payment, chain) }))
    .filter(({ conclusion }) => conclusion.action !== 'leave')
}

/** The only place that decides when the keeper is done with a payment in none of its batches. */
export function decideConclusion(payment: PaymentFacts, { safeBlock, blockTime }: ChainFacts): Conclusion {
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

  // Nobody is charged the fee alone.
  const unsettleable = unsettleableBy(provider.state)
  const isLost = unsettleable !== null || (provider.state === 'open' && provider.validBefore <= blockTime)
  if (!isOver && !isLost) return ended === 'spent' ? { action: 'reopen' } : leave
  // A payment that we can't settle any more waits outside the queue until that is final.
  if (lastBlock !== null && lastBlock > safeBlock) {
    return ended === null ? { action: 'spend' } : leave
  }
  if (!isFailed && unsettleable !== null) return { action: 'fail', ...unsettleable, ifUnused: false }
  if (!isFailed && provider.state === 'open') return { action: 'fail', ...expired(failureCode), ifUnused }
  // A stranger who has the signatures may still send the fee.
  if (!isOver) return leave
  if (isFailed) return { action: 'conclude', code: failureCode, ifUnused }
  if (fee === null || fee.state === 'settled') return { action: 'conclude', code: null, ifUnused }
  return { action: 'conclude', code: (unsettleableBy(fee.state) ?? expired(failureCode)).code, ifUnused }
}

function unsettleableBy(state: HalfState): { code: string; detail: string } | null {
  if (state === 'cancelled') return { code: 'authorization_cancelled', detail: 'cancelled by the payer' }
  if (state === 'foreign_use')
    return { code: 'authorization_used', detail: 'its nonce paid for something else' }
  return null
}

/** Gives the last attempt's failure as the reason why it wasn't settled in time. */
function expired(failureCode: string | null): { code: string; detail: string } {
  return { code: failureCode ?? 'authorization_expired', detail: 'not settled before validBefore' }
}
