import { PresentedRefused, refuseWhere } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { SubmissionConflict, storeSubmission } from '@tollkeeper/ledger/acceptance/submissions'
import { coverSubmission } from '@tollkeeper/ledger/queue/gasDraws'
import { salesStopped } from '@tollkeeper/ledger/registry/salesStop'
import { findSuspendedPayees, isClosedProvider } from '@tollkeeper/ledger/registry/suspendProvider'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Hex } from 'viem'
import type { HttpContext } from '../context.ts'
import { pendingAnswer, toRefusal } from './answer.ts'
import { type Judged, judgeSubmission, type Presentation } from './judgeSubmission.ts'
import { isFresh } from './storedTransfers.ts'

/**
 * Judges a submission, and makes either all of its payments due, or none.
 *
 * @returns its payments
 * @throws {BaseError} the reason for a refusal
 */
export async function startSubmission(
  context: HttpContext,
  key: Hex,
  presentation: Presentation,
): Promise<string[]> {
  const { checkpoint } = context
  const { stored } = presentation
  if (stored.some((one) => one?.isOut)) throw pendingAnswer()
  try {
    await requireOpen(context, presentation)
    const judged = await judgeSubmission(context, presentation)
    await checkpoint('before-submission-recorded')
    await store(context, key, presentation, judged)
    await checkpoint('after-submission-recorded')
    return [...judged.known.map(({ paymentId }) => paymentId), ...judged.candidates.map(({ id }) => id)]
  } catch (error) {
    if (error instanceof SubmissionConflict) throw refusalOfConflict(error)
    if (!(error instanceof PresentedRefused)) throw error
    if (stored.some((one) => one?.maySettle)) throw pendingAnswer()
    throw toRefusal(error.failures) ?? error
  }
}

/** Returns the refusal of a submission whose stored payments can't all join it. */
function refusalOfConflict(conflict: SubmissionConflict): BaseError {
  if (conflict.reason === 'undecided') return pendingAnswer()
  const code = conflict.reason === 'voided' ? 'payment_voided' : 'payment_replayed'
  return new BaseError(code, conflict.message, { cause: conflict })
}

/**
 * Rejects new transfers while sales are stopped, submissions with the API key of a disabled provider, and new transfers to wallets of a
 * suspended provider. Transfers that were accepted earlier settle anyway.
 *
 * @throws {BaseError} `sales_stopped`, `provider_disabled`
 */
async function requireOpen(
  { sql, sales }: HttpContext,
  { network: { served }, transfers, stored, providerId }: Presentation,
): Promise<void> {
  const { network, token } = served
  const fresh = transfers.flatMap(({ to }, index) => (isFresh(stored[index]) ? to : []))
  if (stored.some((one) => isFresh(one))) await sales.requireOpen()
  const [isClosed, suspended] = await Promise.all([
    providerId !== null && isClosedProvider(sql, providerId),
    findSuspendedPayees(sql, { chainId: network.chainId, token }, fresh),
  ])
  if (isClosed)
    throw new BaseError(
      'provider_disabled',
      'The provider of this API key is disabled: enable it, or ask the operator',
    )
  refuseWhere(transfers, ({ to }, index) =>
    suspended.has(to) && isFresh(stored[index])
      ? { code: 'provider_disabled', detail: `the operator has suspended the owner of ${to}` }
      : null,
  )
}

/** Stores the new payments of a submission, and makes all of its payments due. */
async function store(
  { sql, now, gasAllowance: common }: HttpContext,
  key: Hex,
  { network: { gasPerFee }, providerId }: Presentation,
  { candidates, known, cost }: Judged,
): Promise<void> {
  await sql.begin(async (tx) => {
    const verdicts = await storeSubmission(tx, { key, candidates, known }, now())
    if (verdicts.includes('stopped')) throw salesStopped()
    if (verdicts.includes('over_limit')) throw new BaseError('insufficient_balance')
    if (verdicts.includes('replayed')) throw new BaseError('payment_replayed')
    await coverSubmission(tx, key, { cost, gasPerFee, providerId, common }, now())
  })
}
