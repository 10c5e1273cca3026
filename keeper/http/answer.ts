import type { PresentedFailure } from '@tollkeeper/ledger/acceptance/checkSignatures'
import type { SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { isLooseStage } from '@tollkeeper/ledger/queue/stages'
import { BaseError, type ErrorCode, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { Hex } from 'viem'
import { isDecided, isUsedUp } from './facilitator/settlementWatch.ts'

/** Why a transfer can't be settled; then nothing of its submission is. */
export type TransferFailure = { transfer: number; code: ErrorCode; detail?: string }

/** `POST /submit`'s answer when transfers are refused: the code of the first failure, and all of them in its details. */
export function toRefusal(
  failures: readonly PresentedFailure[],
  details: object = {},
): BaseError | undefined {
  const named = failures.map(({ index: transfer, ...rest }): TransferFailure => ({ transfer, ...rest }))
  const [first] = named
  return (
    first &&
    new BaseError(first.code, first.detail, {
      details: { transfer: first.transfer, failures: named, ...details },
    })
  )
}

const codes: Record<string, ErrorCode> = {
  deferred: 'dependency_unavailable',
  token_paused: 'dependency_unavailable',
}

/** The code that a caller gets for a failure on chain or of a batch. */
export function codeOfFailure(code: string): ErrorCode {
  return codes[code] ?? (isErrorCode(code) ? code : 'settlement_failed')
}

/**
 * Where a transfer of a submission stands.
 *
 * - `settled`, `cancelled`, `foreign_use`: what the chain shows
 * - `sent`: it is in a transaction that is out
 * - `queued`: it is in none yet
 */
export type TransferStatus = 'settled' | 'cancelled' | 'foreign_use' | 'sent' | 'queued'

/** Where a transfer stands, and its transaction, if it has one. */
export type TransferPlace = { status: TransferStatus; txHash: Hex | null }

export type SubmitAnswer = {
  /** The submission's own transaction, or one that has a part of it already. */
  txHash: Hex
  /** Where each transfer stands, in the order in which they came. */
  transfers: TransferPlace[]
}

/** A transfer of a submission, as a half of its payment. */
export type WatchedTransfer = { half: 0 | 1; progress: SettlementProgress | undefined }

/**
 * The answer of `POST /submit` to a submission that wasn't given up.
 *
 * @param isUnfunded no wallet of the network can pay for gas.
 */
export function answerOf(watched: readonly WatchedTransfer[], isUnfunded = false): SubmitAnswer {
  const transfers = watched.map(placeOf)
  const failures = watched.flatMap(failureOf)
  const [first] = failures
  if (first) throw new BaseError(first.code, undefined, { details: { failures, transfers } })
  const txHash = watched.every(({ progress }) => progress && isOut(progress))
    ? (transfers.find((one) => one.txHash !== null)?.txHash ?? null)
    : null
  if (txHash === null && isUnfunded)
    throw new BaseError(
      'insufficient_gas_funds',
      "The facilitator's wallet has no ETH for gas: ask again with the same transfers once it has",
    )
  if (txHash === null)
    throw new BaseError('dependency_unavailable', 'Not sent yet: ask again with the same transfers')
  return { txHash, transfers }
}

/** Whether a payment waits, but not within this submission: not yet, or no longer since the submission was given up. */
export function isLetGo(
  { stage, submission }: Pick<SettlementProgress, 'stage' | 'submission'>,
  key: Hex,
): boolean {
  return isLooseStage(stage) && submission !== key
}

/** Whether a transfer looks lost but may still move, by a transaction that is out or after a reorg. */
export function isUndecided(watched: WatchedTransfer, key: Hex): boolean {
  const { half, progress } = watched
  if (progress === undefined || isLetGo(progress, key)) return false
  if (progress.state === 'settled')
    return half === 1 && isUsedUp({ state: stateOf(watched) }) && !progress.isFinal
  return (
    (isUsedUp(progress) || progress.ended === 'failed' || progress.ended === 'voided') && !progress.isLost
  )
}

/** The answer while a no might turn out wrong: the caller asks again with the same transfers. */
export function pendingAnswer(watched: readonly WatchedTransfer[] = []): BaseError {
  const transfers = watched.map(placeOf)
  const details = { ...(transfers.length > 0 && { transfers }), retryAfter: 2 }
  return new BaseError('settlement_pending', undefined, { details })
}

/**
 * The answer for a submission that was given up: why, and where each transfer stands.
 *
 * @param blamed the transfers that can't be settled now, as far as we can tell.
 */
export function refusalOf(
  watched: readonly WatchedTransfer[],
  blamed: readonly PresentedFailure[],
): BaseError {
  const transfers = watched.map(placeOf)
  const refusal = toRefusal(blamed, { transfers })
  if (refusal) return refusal
  const failures = watched.flatMap(failureOf)
  const codes = watched.flatMap(({ progress }) =>
    progress?.ended === 'failed' ? codeOfFailure(progress.failureCode ?? '') : [],
  )
  const code = failures[0]?.code ?? codes[0] ?? 'dependency_unavailable'
  return new BaseError(code, undefined, { details: { failures, transfers } })
}

function isOut(progress: SettlementProgress): boolean {
  return isDecided(progress) || progress.txHash !== null
}

function stateOf({ half, progress }: WatchedTransfer) {
  return (half === 0 ? progress?.state : progress?.feeState) ?? 'open'
}

function placeOf(watched: WatchedTransfer): TransferPlace {
  const { progress } = watched
  const state = stateOf(watched)
  const txHash = progress?.txHash ?? null
  if (state !== 'open')
    return { status: state, txHash: watched.half === 0 ? txHash : (progress?.feeTxHash ?? null) }
  if (txHash !== null && progress?.ended === null) return { status: 'sent', txHash }
  return { status: 'queued', txHash: null }
}

/** The failure of a transfer, if the record shows one. */
function failureOf(watched: WatchedTransfer, transfer: number): TransferFailure[] {
  const state = stateOf(watched)
  if (state === 'cancelled') return [{ transfer, code: 'authorization_cancelled' }]
  if (state === 'foreign_use') return [{ transfer, code: 'authorization_used' }]
  if (state === 'open' && watched.progress?.ended === 'voided') return [{ transfer, code: 'payment_voided' }]
  return []
}
