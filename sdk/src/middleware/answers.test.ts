import { expect, test } from 'vitest'
import { createAnswerMemory } from './answerStore.ts'
import { createAnswers } from './answers.ts'

const presented = { kind: 'payment', payloads: ['a', 'b'], macaroon: 'm' } as never
const answer = { status: 200, headers: [], body: new TextEncoder().encode('rain') }
const served = async () => ({ kind: 'serve', headers: {}, payment: { paymentId: 'pay_1' } }) as never

/** Keeps the thread busy, as a machine does on which others take the processor. */
function stall(ms: number): void {
  for (const began = performance.now(); performance.now() - began < ms; );
}

test('behavior: an answer is kept though its process stands still meanwhile', async () => {
  const answers = createAnswers({}, { shelf: createAnswerMemory(1_000), waitMs: 1_000, onFailure: () => {} })
  const request = { method: 'POST', resource: '/', readBody: async () => new Uint8Array([1]) }
  const decision = await answers.once(presented, request, served)
  if (decision.kind !== 'serve') throw new Error(decision.kind)
  const kept = decision.keep?.keep(answer)
  stall(1_200)
  await kept
  expect(await answers.once(presented, request, served)).toMatchObject({
    kind: 'again',
    answer: { status: 200 },
  })
})
