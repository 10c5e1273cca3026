import type { PresentedFailure } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { BaseError, type ErrorCode, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { Hex } from 'viem'
import { describeFailure, pendingMessage, type SettlementVerdict } from '../settleNow/verdict.ts'

/** Why a transfer can't be settled; then its whole submission isn't. */
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

/** Where a transfer stands, and its transaction, if it has one: as the chain shows it, else whether the keeper has sent it. */
export type TransferPlace = {
  status: 'settled' | 'cancelled' | 'foreign_use' | 'sent' | 'queued'
  txHash: Hex | null
}

export type SubmitAnswer = {
  /** The submission's own transaction, or one that has a part of it already. */
  txHash: Hex
  /** Where each transfer stands, in the order in which they came. */
  transfers: TransferPlace[]
}

/**
 * Answers `POST /submit` by the verdict on each transfer, in the order in which they came.
 *
 * @param isUnfunded whether no wallet of the network can pay for gas.
 * @param blamed the transfers that can't be settled now, if the submission failed.
 * @throws {BaseError} unless all of it has settled or is in a transaction.
 */
export function answerOf(
  verdicts: readonly SettlementVerdict[],
  { isUnfunded = false, blamed = [] }: { isUnfunded?: boolean; blamed?: readonly PresentedFailure[] } = {},
): SubmitAnswer {
  const transfers = verdicts.map(placeOf)
  if (verdicts.some(({ status }) => status === 'doubtful')) throw pendingAnswer(transfers)
  if (verdicts.some(hasFailed)) throw refusalOf(verdicts, blamed, transfers)
  const txHash = transfers.find((one) => one.txHash !== null)?.txHash ?? null
  if (txHash !== null && verdicts.every(({ status }) => status !== 'queued')) return { txHash, transfers }
  if (isUnfunded)
    throw new BaseError(
      'insufficient_gas_funds',
      "The facilitator's wallet has no ETH for gas: ask again with the same transfers once it has",
    )
  throw new BaseError('dependency_unavailable', 'Not sent yet: ask again with the same transfers')
}

/** Whether a transfer isn't settled by this submission any more. */
export function hasFailed({ status }: SettlementVerdict): boolean {
  return status === 'failed' || status === 'released'
}

/** The answer while a refusal might turn out wrong: the caller asks again with the same transfers. */
export function pendingAnswer(transfers: readonly TransferPlace[] = []): BaseError {
  const details = { ...(transfers.length > 0 && { transfers }), retryAfter: 2 }
  return new BaseError('settlement_pending', pendingMessage, { details })
}

/** The answer to a submission that failed: why, and where each transfer stands. */
function refusalOf(
  verdicts: readonly SettlementVerdict[],
  blamed: readonly PresentedFailure[],
  transfers: readonly TransferPlace[],
): BaseError {
  const refusal = toRefusal(blamed, { transfers })
  if (refusal) return refusal
  const failures = verdicts.flatMap(({ fault }, transfer): TransferFailure[] =>
    fault ? [{ transfer, code: fault }] : [],
  )
  const reason = verdicts.find(({ fault }) => fault) ?? verdicts.find(({ failureCode }) => failureCode)
  const { code, message } = reason
    ? describeFailure(reason)
    : { code: 'deferred', message: 'another part of its submission failed' }
  return new BaseError(codeOfFailure(code), message, { details: { failures, transfers } })
}

function placeOf({ state, txHash, isOpen }: SettlementVerdict): TransferPlace {
  if (state !== 'open') return { status: state, txHash }
  return txHash !== null && isOpen ? { status: 'sent', txHash } : { status: 'queued', txHash: null }
}
