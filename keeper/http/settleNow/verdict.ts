import type { SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import type { HalfState } from '@tollkeeper/ledger/facts/halves'
import { isLooseStage } from '@tollkeeper/ledger/queue/stages'
import type { ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { Hex } from 'viem'

// `POST /submit` and x402's `/settle` answer by these verdicts. Only this file derives them from a payment's progress.

/**
 * How far an authorization has come.
 *
 * - `settled`: the chain shows that its payment has settled
 * - `sent`: it is in a transaction that is out
 * - `queued`: it waits for a transaction
 * - `doubtful`: it looks lost, but a transaction that is out or a reorg may still settle it
 * - `released`: it waits, but not with this submission, which failed or never had it
 * - `failed`: it isn't settled and never will be, even after a reorg
 */
export type VerdictStatus = 'settled' | 'sent' | 'queued' | 'doubtful' | 'released' | 'failed'

export type SettlementVerdict = {
  status: VerdictStatus
  /** The state of the authorization on the chain. */
  state: HalfState
  /** The transaction that settled or used it; for an open one, the transaction that may settle it. */
  txHash: Hex | null
  /** Whether its payment has no outcome yet. */
  isOpen: boolean
  /** The fault of this authorization; null: none is known. */
  fault: Extract<ErrorCode, 'authorization_cancelled' | 'authorization_used' | 'payment_voided'> | null
  /** The code with which its payment failed, perhaps because of another payment; null: it didn't fail. */
  failureCode: string | null
}

export type VerdictOf = {
  /** 0: the provider's, 1: the platform's. Default 0. */
  half?: 0 | 1
  /** The submission that it must be settled with. Default null: it is settled by itself. */
  submission?: Hex | null
}

/** Judges an authorization by the progress of its payment; undefined: nothing was read. */
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

/** Whether its payer has cancelled an authorization, or used it for something else. */
export function isUsedUp(state: HalfState | null): boolean {
  return state === 'cancelled' || state === 'foreign_use'
}

/** Whether a payment waits outside a submission: it hasn't joined it, or the submission failed. */
function isReleased(stage: SettlementProgress['stage'], current: Hex | null, submission: Hex): boolean {
  return isLooseStage(stage) && current !== submission
}

function faultOf(state: HalfState, progress: SettlementProgress | undefined): SettlementVerdict['fault'] {
  if (state === 'cancelled') return 'authorization_cancelled'
  if (state === 'foreign_use') return 'authorization_used'
  return state === 'open' && progress?.ended === 'voided' ? 'payment_voided' : null
}

/** The message for a settlement that isn't decided. */
export const pendingMessage = 'the settlement is not confirmed yet: ask again'

/** Why a settlement failed, as a code and in words. */
export function describeFailure({ fault, failureCode }: SettlementVerdict): {
  code: string
  message: string
} {
  // Without a recorded reason, it has expired.
  const code = fault ?? failureCode ?? 'authorization_expired'
  return { code, message: messages[code] ?? `settlement failed: ${code}` }
}

const messages: Record<string, string> = {
  authorization_cancelled: 'the authorization was cancelled',
  authorization_used: 'the authorization was used otherwise',
  payment_voided: 'it was voided before it was sent, and will not be sent',
}
