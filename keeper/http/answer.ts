import { type Hex, parseTransaction } from 'viem'
import type { Queryable } from '#ledger/database'
import type { SubmissionState } from '#ledger/submissions'
import { type KnownTransfer, readKnownTransfers, type TransferPlace } from '#ledger/transferReports'
import { BaseError } from '#protocol/errors'
import { decodeSettle } from '#protocol/settlement'
import { codeOfFailure, type TransferFailure } from './judgeTransfers.ts'
import { nameOf, type Submission } from './parseSubmission.ts'

export type SubmitAnswer = {
  /** Of the submission's own transaction, or of one that carries some of it already. */
  txHash: Hex
  /** What became of each transfer, in the order in which they came. */
  transfers: TransferPlace[]
}

/** What `POST /submit` answers once there is a transaction. */
export async function answerOf(sql: Queryable, submission: Submission, txHash: Hex): Promise<SubmitAnswer> {
  return { txHash, transfers: await readPlaces(sql, submission) }
}

/** What it answers to a submission that was given up: why, as far as it is known of each transfer, and where each stands. */
export async function refusalOf(
  sql: Queryable,
  submission: Submission,
  state: SubmissionState,
  failureCode: string,
): Promise<BaseError> {
  const reports = new Map((state.report ?? []).map((one) => [one.name, one]))
  const failures = submission.transfers.flatMap((one, transfer): TransferFailure[] => {
    const report = reports.get(nameOf(one))
    if (!report) return []
    const { code, detail } = report
    return [{ transfer, code: codeOfFailure(code), ...(detail !== undefined && { detail }) }]
  })
  const transfers = await readPlaces(sql, submission)
  return new BaseError(codeOfFailure(failureCode), undefined, { details: { failures, transfers } })
}

/** Where each transfer stands: the chain's word first, then what our transactions carry. */
async function readPlaces(sql: Queryable, { served, transfers }: Submission): Promise<TransferPlace[]> {
  const scope = { chainId: served.network.chainId, token: served.token }
  const known = await readKnownTransfers(sql, scope, transfers)
  const carried = new Map<Hex, Set<string>>()
  const carries = ({ hash, raw }: NonNullable<KnownTransfer['carrier']>, name: string) => {
    const names = carried.get(hash) ?? readNames(raw)
    carried.set(hash, names)
    return names.has(name)
  }
  return transfers.map((transfer): TransferPlace => {
    const name = nameOf(transfer)
    const { state, seenIn, carrier } = known.get(name) ?? { state: 'open', seenIn: null, carrier: null }
    if (state !== 'open') return { status: state, txHash: seenIn }
    if (carrier && carries(carrier, name)) return { status: 'sent', txHash: carrier.hash }
    return { status: 'queued', txHash: null }
  })
}

function readNames(raw: Hex): Set<string> {
  const { items } = decodeSettle(parseTransaction(raw).data ?? '0x')
  return new Set(
    items.flatMap(({ authorization, fee }) => (fee ? [authorization, fee] : [authorization])).map(nameOf),
  )
}
