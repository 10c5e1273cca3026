import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { sendUntilAnswered } from './presentation.ts'
import { type Answer, startDeadline } from './transport.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

test.each([
  ['7', 7_000],
  ['60', 60_000],
  ['0', 250],
  ['61', 1_000],
  ['86400', 1_000],
  ['-1', 1_000],
  ['tomorrow', 1_000],
])('args: after Retry-After: %s a pending payment is presented again in %d ms', async (retryAfter, ms) => {
  let asked = 0
  const send = async (): Promise<Answer> => {
    asked += 1
    const headers = new Headers({ 'retry-after': retryAfter })
    const body = { code: 'settlement_pending' }
    return { url: 'https://api.example/', status: asked === 1 ? 503 : 200, headers, body }
  }
  const answer = sendUntilAnswered(send, startDeadline(), { pendingTimeoutMs: undefined, log: () => {} })
  await vi.advanceTimersByTimeAsync(ms - 1)
  expect(asked).toBe(1)
  await vi.advanceTimersByTimeAsync(1)
  expect(asked).toBe(2)
  expect((await answer).status).toBe(200)
})
