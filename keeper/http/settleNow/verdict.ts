import type { SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import type { HalfState } from '@tollkeeper/ledger/facts/halves'
import { isUnbatchedStage } from '@tollkeeper/ledger/queue/stages'
import type { ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { Hex } from 'viem'

// The verdicts with which `POST /submit` and x402's `/settle` answer. Only this file derives them from a payment's progress.

/**
 * The status of an authorization.
 *
 * - `settled`: the chain shows that its payment has settled
 * - `sent`: it is in a transaction in flight
 * - `queued`: it waits for a transaction
 * - `doubtful`: it seems to be lost, but a transaction in flight or a reorg may still settle it
 * - `released`: it waits, but not as part of this submission, which failed or never contained it
 * - `failed`: it isn't settled and never will be, even after a reorg
 */
export type VerdictStatus = 'settled' | 'sent' | 'queued' | 'doubtful' | 'released' | 'failed'

export type SettlementVerdict = {
  status: VerdictStatus
  /** The state of the authorization on the chain. */
  state: HalfState
  /** The transaction that settled or used it; for an open one, the transaction that may settle it. */
  txHash: Hex | null
  /** Whether its payment is neither settled nor failed yet. */
  isOpen: boolean
  /** The fault of this authorization itself; null if none is known. */
  fault: Extract<ErrorCode, 'authorization_cancelled' | 'authorization_used' | 'payment_voided'> | null
  /** The code with which its payment failed, possibly because of another payment; null if it didn't fail. */
  failureCode: string | null
}

export type VerdictOf = {
  /** The authorization: 0 is the provider's, 1 the platform's. Default 0. */
  half?: 0 | 1
  /** The submission in which it must settle. Default null: it settles by itself. */
  submission?: Hex | null
}

/** Judges an authorization by the progress of its payment, which is undefined if it couldn't be read. */
export function verdictOf(
  progress: SettlementProgress | undefined,
  { half = 0, submission = null }: VerdictOf = {},
): SettlementVerdict {
  const state = (half === 0 ? progress?.state : progress?.feeState) ?? 'open'
  const ownHash = half === 0 || state === 'open' ? progress?.txHash : progress?.feeTxHash
  return {
    status: progress ? statusOf(progress, half, submission) : 'queued',
    state,
    txHash: ownHash ?? null,
    isOpen: progress?.ended === null,
    fault: faultOf(state, progress),
    failureCode: progress?.ended === 'failed' ? (progress.failureCode ?? 'settlement_failed') : null,
  }
}

function statusOf(progress: SettlementProgress, half: 0 | 1, submission: Hex | null): VerdictStatus {
  const { state, feeState, stage, ended, isLost, isFinal, txHash } = progress
  if (state === 'settled') {
    if (half === 0 || !isUsedUp(feeState)) return 'settled'
    return isFinal ? 'failed' : 'doubtful'
  }
  if (submission !== null && isReleased(stage, progress.submission, submission)) return 'released'
  if (isLost) return 'failed'
  if (isUsedUp(state) || ended === 'failed' || ended === 'voided') return 'doubtful'
  return txHash === null ? 'queued' : 'sent'
}

/** Whether the payer has cancelled an authorization, or used it outside of our settlements. */
export function isUsedUp(state: HalfState | null): boolean {
  return state === 'cancelled' || state === 'foreign_use'
}

/** Whether a payment waits outside of a submission: it never joined the submission, or the submission has failed. */
function isReleased(stage: SettlementProgress['stage'], current: Hex | null, submission: Hex): boolean {
  return isUnbatchedStage(stage) && current !== submission
}

function faultOf(state: HalfState, progress: SettlementProgress | undefined): SettlementVerdict['fault'] {
  if (state === 'cancelled') return 'authorization_cancelled'
  if (state === 'foreign_use') return 'authorization_used'
  return state === 'open' && progress?.ended === 'voided' ? 'payment_voided' : null
}

/** The message for a settlement that isn't decided. */
export const pendingMessage = 'the settlement is not confirmed yet: repeat the request'

/** Returns why a settlement failed, as a code and as a message. */
export function describeFailure({ fault, failureCode }: SettlementVerdict): {
  code: string
  message: string
} {
  // If no reason is recorded, the authorization has expired.
  const code = fault ?? failureCode ?? 'authorization_expired'
  return { code, message: messages[code] ?? `settlement failed: ${code}` }
}

const messages: Record<string, string> = {
  authorization_cancelled: 'the authorization was cancelled: sign a new one',
  authorization_used: 'the authorization was used in another transaction: sign a new one',
  payment_voided: 'the payment was voided before it was sent, and will not be sent: sign a new one',
}
