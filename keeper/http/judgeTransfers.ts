import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Address } from 'viem'
import type { Failure } from '#chain/failures'
import { callGasLimit, countThatFit } from '#chain/gas'
import { pinBlock } from '#chain/head'
import type { PayersWithCode } from '#chain/payerCode'
import { checkSignaturesHere } from '#chain/payerSignatures'
import type { ServedNetwork } from '#chain/servedNetworks'
import { diagnose } from '#chain/simulate'
import { findRefusals } from '#chain/transferRefusals'
import { BaseError, type ErrorCode, isErrorCode } from '#protocol/errors'
import type { SignedAuthorization } from '#protocol/payload'

/** Why one transfer of a submission can't be settled; nothing of the submission is, then. */
export type TransferFailure = {
  /** Its position in the submission. */
  transfer: number
  code: ErrorCode
  detail?: string
}

/** @throws {BaseError} with the code of the first failure, and all of them in its details. */
export function refuseFailures(failures: readonly TransferFailure[]): void {
  const [first] = failures
  if (!first) return
  throw new BaseError(first.code, first.detail, { details: { transfer: first.transfer, failures } })
}

const codes: Record<string, ErrorCode> = {
  deferred: 'dependency_unavailable',
  token_paused: 'dependency_unavailable',
}

/** The code that a caller gets for what the chain or a batch of ours failed with. */
export function codeOfFailure(code: string): ErrorCode {
  return codes[code] ?? (isErrorCode(code) ? code : 'settlement_failed')
}

/** Recoveries between which other requests get their turn: 2 ms. */
const togetherAtMost = 32

/**
 * Looks at windows and signatures without asking anybody.
 *
 * @returns `failures`, and the positions of transfers that their payer's own key did not sign: they are worth nothing,
 *   unless the payer has code. Where no payer may have code the search ends at the first such signature.
 */
export async function judgeLocally(
  served: ServedNetwork,
  transfers: readonly SignedAuthorization[],
  { now, mayHaveCode }: { now: Date; mayHaveCode: boolean },
): Promise<{ failures: TransferFailure[]; unsigned: number[] }> {
  const seconds = BigInt(Math.floor(now.getTime() / 1000))
  const failures = transfers.flatMap(({ validAfter, validBefore }, transfer): TransferFailure[] => {
    if (validAfter >= seconds) return [{ transfer, code: 'authorization_not_yet_valid' }]
    if (validBefore <= seconds) return [{ transfer, code: 'authorization_expired' }]
    return []
  })
  const unsigned: number[] = []
  for (let from = 0; from < transfers.length && failures.length === 0; from += togetherAtMost) {
    const some = transfers.slice(from, from + togetherAtMost)
    const isSigned = await checkSignaturesHere(served.domainSeparator, some)
    unsigned.push(...some.flatMap((_, index) => (isSigned[index] ? [] : [from + index])))
    if (!mayHaveCode) failures.push(...unsigned.map((one) => ({ ...badSignature(one), detail: withoutKey })))
    await nextTurn()
  }
  return { failures, unsigned }
}

/** Whether its payer has code isn't looked up: junk without a key is to cost no call to the chain. */
const withoutKey =
  "Its payer's own key did not sign it. If the payer is a contract, send the transfers with an API key, or wait for the keeper"

function badSignature(transfer: number): TransferFailure {
  return { transfer, code: 'invalid_signature' }
}

export type ChainQuestion = {
  /** Positions of transfers that their payer's own key did not sign. */
  unsigned: readonly number[]
  /** For each transfer the position of the one that it is the fee of, or null. */
  feeOf: readonly (number | null)[]
  mayHaveCode: boolean
}

/** What a payer's wallet may use when the token asks it for a signature, and what the token itself needs. */
const codeTransferGas = callGasLimit(true) + 60_000n

/**
 * Asks the chain, as of one block, what it would make of transfers: first what the token's storage says, then which
 * payers have code, and only for transfers of these the token itself.
 *
 * @throws {BaseError} `payload_too_large` for what doesn't fit one transaction, `unauthorized` for payers with code.
 */
export async function judgeOnChain(
  { served, payersWithCode }: { served: ServedNetwork; payersWithCode: PayersWithCode },
  transfers: readonly SignedAuthorization[],
  { unsigned, feeOf, mayHaveCode }: ChainQuestion,
): Promise<TransferFailure[]> {
  const { client, token, deployment } = served
  requireFit(transfers, feeOf, unsigned.length > 0)
  const at = await pinBlock(client, 0n)
  const refusals = collect(await findRefusals(served, transfers, at))
  if (refusals.length > 0) return refusals

  const withCode = await payersWithCode(transfers.map(({ from }) => from))
  const plain = unsigned.filter((transfer) => !withCode.has(transfers[transfer]?.from as Address))
  if (plain.length > 0) return plain.map(badSignature)
  if (withCode.size === 0) return []
  if (!mayHaveCode) {
    throw new BaseError('unauthorized', `${[...withCode][0]} has code: its transfers need an API key`)
  }
  requireFit(transfers, feeOf, true)
  return collect(
    await Promise.all(
      transfers.map((transfer) =>
        withCode.has(transfer.from)
          ? diagnose(client, token, deployment.batchSettlement, transfer, at, { gas: codeTransferGas })
          : null,
      ),
    ),
  )
}

/** All of a submission goes into one transaction, because its answer names one. */
function requireFit(
  transfers: readonly SignedAuthorization[],
  feeOf: readonly (number | null)[],
  hasCode: boolean,
): void {
  const fees = new Set(feeOf)
  const items = transfers.flatMap(({ to }, index) =>
    feeOf[index] == null ? [{ isPair: fees.has(index), recipient: to }] : [],
  )
  if (countThatFit(items, hasCode) === items.length) return
  throw new BaseError('payload_too_large', 'The transfers need more gas than one transaction may have')
}

function collect(found: readonly (Failure | null)[]): TransferFailure[] {
  return found.flatMap((failure, transfer) =>
    failure ? [{ transfer, code: codeOfFailure(failure.code), detail: failure.detail }] : [],
  )
}
