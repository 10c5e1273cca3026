import type { PresentedFailure } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { BaseError, type ErrorCode, isErrorCode } from '@tollkeeper/sdk/protocol/errors'
import type { Hex } from 'viem'
import { describeFailure, pendingMessage, type SettlementVerdict } from '../settleNow/verdict.ts'

/** The reason why a transfer, and therefore its whole submission, can't be settled. */
export type TransferFailure = { transfer: number; code: ErrorCode; detail?: string }

/** Returns the answer of `POST /submit` to refused transfers: the code of the first failure, with all failures in the details. */
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

/** Returns the code that a caller receives for a failure on chain or of a batch. */
export function codeOfFailure(code: string): ErrorCode {
  return codes[code] ?? (isErrorCode(code) ? code : 'settlement_failed')
}

/**
 * The status of a transfer. While the chain doesn't show that it was used, it is `sent` if the keeper has sent a transaction with it, otherwise
 * `queued`. `txHash` is null if there is no transaction.
 */
export type TransferPlace = {
  status: 'settled' | 'cancelled' | 'foreign_use' | 'sent' | 'queued'
  txHash: Hex | null
}

export type SubmitAnswer = {
  /** The submission's transaction. If an earlier transaction already contained some of the transfers, `txHash` may be that transaction's hash. */
  txHash: Hex
  /** The status of each transfer, in the order of the request. */
  transfers: TransferPlace[]
}

/**
 * Answers `POST /submit` by the verdict on each transfer, in the order of the request.
 *
 * @param isUnfunded whether no wallet of the network can pay for gas
 * @param blamed the transfers that can't be settled now, if the submission failed
 * @throws {BaseError} if a transfer has neither settled nor been put into a transaction
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
      "The facilitator's wallet has no gas money: submit the same transfers again later",
    )
  throw new BaseError('dependency_unavailable', 'Not sent yet: submit the same transfers again')
}

/** Whether a transfer can no longer settle as a part of this submission. */
export function hasFailed({ status }: SettlementVerdict): boolean {
  return status === 'failed' || status === 'released'
}

/** Returns the answer while the result isn't certain. It asks the caller to submit the same transfers again. */
export function pendingAnswer(transfers: readonly TransferPlace[] = []): BaseError {
  const details = { ...(transfers.length > 0 && { transfers }), retryAfter: 2 }
  return new BaseError('settlement_pending', pendingMessage, { details })
}

/** Returns the answer to a submission that failed, with the reason and the status of each transfer. */
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
    : { code: 'deferred', message: 'another transfer of the same submission failed' }
  return new BaseError(codeOfFailure(code), message, { details: { failures, transfers } })
}

function placeOf({ state, txHash, isOpen }: SettlementVerdict): TransferPlace {
  if (state !== 'open') return { status: state, txHash }
  return txHash !== null && isOpen ? { status: 'sent', txHash } : { status: 'queued', txHash: null }
}
