import { findPayments } from '@tollkeeper/ledger/acceptance/submissions'
import { type HttpContext, networkOf } from './context.ts'
import type { Connection } from './settleNow/connection.ts'
import { settleNow } from './settleNow/settleNow.ts'
import type { SubmitAnswer } from './submission/answer.ts'
import { answerSubmission } from './submission/answerSubmission.ts'
import { parseSubmission } from './submission/parseSubmission.ts'
import { startSubmission } from './submission/startSubmission.ts'
import { idsUnderWay, requireSettleable, toStored } from './submission/storedTransfers.ts'
import { admitCaller, type SubmitCaller } from './submitRules.ts'

/**
 * Settles signed transfers (conformance 4.2), all or none, and answers with their transaction.
 *
 * The keeper pays the gas. So before it sends a transaction, it refuses everything that would waste gas. It also refuses an authorization
 * that failed in one of its earlier transactions.
 *
 * @throws {BaseError} with the answer's code
 */
export async function submitTransfers(
  context: HttpContext,
  body: unknown,
  caller: SubmitCaller,
  connection: Connection,
): Promise<SubmitAnswer> {
  const { sql, submitTimeoutMs, checkpoint } = context
  const providerId = await admitCaller(context, caller)
  const { served, transfers, key } = parseSubmission(context.served, body)
  const network = networkOf(context, served)
  const scope = { chainId: served.network.chainId, token: served.token, submission: key }
  const progress = await settleNow(context, {
    read: async () => requireSettleable(transfers, await findPayments(sql, scope, transfers)),
    resume: async (stored) => idsUnderWay(stored),
    start: (stored) => startSubmission(context, key, { network, transfers, stored, providerId }),
    onDue: () => context.wake(),
    submission: key,
    policy: {
      isEnough: (status) => status !== 'queued',
      answerMs: submitTimeoutMs,
      voidMs: Number.POSITIVE_INFINITY,
    },
    connection,
  })
  const stored = toStored(transfers, await findPayments(sql, scope, transfers))
  const answer = await answerSubmission(context, key, { network, transfers, stored, providerId }, progress)
  await checkpoint('before-submission-answer')
  return answer
}
