import type { SettlementProgress } from '@tollkeeper/ledger/acceptance/facilitations'
import { expect, test } from 'vitest'
import type { HttpContext } from '../context.ts'
import { answerSubmission } from './answerSubmission.ts'
import type { Presentation } from './judgeSubmission.ts'

const failed = {
  state: 'open',
  ended: 'failed',
  failureCode: 'deferred',
  submission: null,
  stage: null,
} as const

test('behavior: does not query the chain while a payment of the submission may still settle', async () => {
  const progress = new Map(
    [
      { ...failed, paymentId: 'doubtful', isLost: false },
      { ...failed, paymentId: 'lost', isLost: true },
    ].map((one) => [one.paymentId, one as SettlementProgress]),
  )
  const presentation = {
    network: { served: { network: { chainId: 31_337 } } },
    transfers: [{}, {}],
    stored: [...progress.keys()].map((paymentId) => ({ paymentId, half: 0 })),
  } as unknown as Presentation
  // This context can't read the chain.
  const answer = answerSubmission({} as HttpContext, '0x01', presentation, progress)
  await expect(answer).rejects.toMatchObject({ code: 'settlement_pending' })
})
