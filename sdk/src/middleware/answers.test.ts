import { describe, expect, test } from 'vitest'
import { createAnswerMemory } from './answerStore.ts'
import { createAnswers } from './answers.ts'

const presented = { kind: 'payment', payloads: ['a', 'b'], macaroon: 'm' } as never
const answer = { status: 200, headers: [], body: new TextEncoder().encode('rain') }
const served = async () => ({ kind: 'serve', headers: {}, payment: { paymentId: 'pay_1' } }) as never

/** Blocks the thread, to simulate a machine on which other programs use the processor. */
function stall(ms: number): void {
  for (const began = performance.now(); performance.now() - began < ms; );
}

test('behavior: keeps a response even if the process was paused while the response was sent', async () => {
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

describe('the response to a paid request', () => {
  const tab = { tab: 'tab_1', sequence: 1 }
  const presentations = [
    { kind: 'payment', payloads: ['a', 'b'], macaroon: 'm' },
    { kind: 'tab', tab, macaroon: 'm' },
  ] as const
  const request = { method: 'GET', resource: '/rain?city=1', readBody: undefined }

  async function keepAnswer(first: (typeof presentations)[number]) {
    const answers = createAnswers(
      {},
      { shelf: createAnswerMemory(1_000), waitMs: 1_000, onFailure: () => {} },
    )
    const decision = await answers.once(first as never, request, served)
    if (decision.kind !== 'serve') throw new Error(decision.kind)
    await decision.keep?.keep(answer)
    return async (change: object, asked = request) =>
      (await answers.once({ ...first, ...change } as never, asked, served)).kind
  }

  test.each(presentations)('default: is replayed when the same $kind is presented again', async (first) => {
    const present = await keepAnswer(first)
    expect(await present({})).toBe('again')
  })

  test.each(presentations)('error: is not replayed to a $kind with another macaroon', async (first) => {
    const present = await keepAnswer(first)
    expect(await present({ macaroon: 'n' })).toBe('serve')
    expect(await present({ macaroon: undefined })).toBe('serve')
  })

  test('error: is not replayed to a payment with other signatures', async () => {
    const present = await keepAnswer(presentations[0])
    expect(await present({ payloads: ['a', 'c'] })).toBe('serve')
  })

  test('error: is not replayed to a payment with another state of the tab', async () => {
    const present = await keepAnswer(presentations[1])
    expect(await present({ tab: { ...tab, sequence: 2 } })).toBe('serve')
  })

  test.each([
    ['method', { method: 'DELETE' }],
    ['resource', { resource: '/rain?city=2' }],
  ])('error: is not replayed to a request with another %s', async (_, change) => {
    const present = await keepAnswer(presentations[0])
    expect(await present({}, { ...request, ...change })).toBe('serve')
  })

  test('error: is not replayed to a request with another body', async () => {
    const present = await keepAnswer(presentations[0])
    const asked = { ...request, readBody: async () => new Uint8Array([1]) } as never
    expect(await present({}, asked)).toBe('serve')
  })

  test('default: is kept for ten minutes', async () => {
    const memory = createAnswerMemory(1_000)
    const lifetimes: number[] = []
    const shelf: typeof memory = {
      ...memory,
      async put(name, entry, seconds) {
        lifetimes.push(seconds)
        await memory.put(name, entry, seconds)
      },
    }
    const answers = createAnswers({}, { shelf, waitMs: 1_000, onFailure: () => {} })
    const decision = await answers.once(presentations[0] as never, request, served)
    if (decision.kind !== 'serve') throw new Error(decision.kind)
    await decision.keep?.keep(answer)
    expect(lifetimes).toEqual([600])
  })

  test.each(presentations)('error: is not kept for a $kind without a macaroon', async (first) => {
    const answers = createAnswers(
      {},
      { shelf: createAnswerMemory(1_000), waitMs: 1_000, onFailure: () => {} },
    )
    const bare = { ...first, macaroon: undefined } as never
    const decision = await answers.once(bare, request, served)
    if (decision.kind !== 'serve') throw new Error(decision.kind)
    await decision.keep?.keep(answer)
    const replayed = { status: 409, headers: {}, body: '{}' }
    const refuse = async () => ({ kind: 'answer', answer: replayed }) as const
    expect(await answers.once(bare, request, refuse)).toEqual({ kind: 'answer', answer: replayed })
  })

  test.each([
    [4, 'again'],
    [3, 'answer'],
  ])(
    'args: if the response has 4 bytes and maxAnswerBytes is %d, a repeated request gets the decision %j',
    async (maxAnswerBytes, expected) => {
      const shelf = createAnswerMemory(1_000)
      const answers = createAnswers({ maxAnswerBytes }, { shelf, waitMs: 1_000, onFailure: () => {} })
      const decision = await answers.once(presentations[0] as never, request, served)
      if (decision.kind !== 'serve') throw new Error(decision.kind)
      await decision.keep?.keep(answer)
      const replayed = { status: 409, headers: {}, body: '{}' }
      const refuse = async () => ({ kind: 'answer', answer: replayed }) as const
      expect(await answers.once(presentations[0] as never, request, refuse)).toMatchObject({ kind: expected })
    },
  )
})
