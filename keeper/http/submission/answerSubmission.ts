import { type PresentedFailure, PresentedRefused } from '@tollkeeper/ledger/acceptance/checkSignatures'
import { isOutOfGasMoney } from '@tollkeeper/ledger/batches/leases'
import type { Hex } from 'viem'
import type { HttpContext } from '../context.ts'
import type { Progress } from '../settleNow/settleNow.ts'
import { type SettlementVerdict, verdictOf } from '../settleNow/verdict.ts'
import { answerOf, hasFailed, type SubmitAnswer } from './answer.ts'
import { judgeSubmission, type Presentation } from './judgeSubmission.ts'

/**
 * Answers a submission by the progress of its payments.
 *
 * @throws {BaseError} if a transfer has neither settled nor been put into a transaction
 */
export async function answerSubmission(
  context: HttpContext,
  key: Hex,
  presentation: Presentation,
  progress: Progress,
): Promise<SubmitAnswer> {
  const verdicts = presentation.stored.map((one) =>
    verdictOf(one && progress.get(one.paymentId), { half: one?.half ?? 0, submission: key }),
  )
  const isLost = [...progress.values()].some((one) => hasFailed(verdictOf(one, { submission: key })))
  // While a transfer may still settle, the submission isn't decided, so the answer needs no reason from the chain.
  const isDoubtful = verdicts.some(({ status }) => status === 'doubtful')
  const { chainId } = presentation.network.served.network
  return answerOf(verdicts, {
    // The whole submission failed because of one transfer. Only the chain shows which transfer that is.
    blamed: isLost && !isDoubtful ? await findBlamed(context, presentation, verdicts) : [],
    isUnfunded: !isLost && (await isOutOfGasMoney(context.sql, chainId)),
  })
}

/** Asks the chain which of the transfers that haven't settled can't be settled now. */
async function findBlamed(
  context: HttpContext,
  { transfers, stored, ...presentation }: Presentation,
  verdicts: readonly SettlementVerdict[],
): Promise<PresentedFailure[]> {
  const left = [...transfers.entries()].filter(([index]) => verdicts[index]?.status !== 'settled')
  try {
    await judgeSubmission(context, {
      ...presentation,
      transfers: left.map(([, transfer]) => transfer),
      stored: left.map(([index]) => stored[index]),
    })
    return []
  } catch (error) {
    if (!(error instanceof PresentedRefused)) throw error
    return error.failures.map((one) => ({ ...one, index: left[one.index]?.[0] ?? 0 }))
  }
}
