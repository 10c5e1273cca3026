import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { sendUntilAnswered } from './presentation.ts'
import { type Answer, startDeadline } from './transport.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const date = 'Sat, 28 Nov 2026 12:00:00 GMT'

/** A seller that fails once. */
function failOnce(headers: Record<string, string>, status = 503, code = 'settlement_pending') {
  const seller = { asked: 0 }
  const send = async (): Promise<Answer> => {
    seller.asked += 1
    return {
      url: 'https://api.example/',
      status: seller.asked === 1 ? status : 200,
      headers: new Headers(headers),
      body: { code },
    }
  }
  const answer = sendUntilAnswered(send, startDeadline(), { pendingTimeoutMs: undefined, log: () => {} })
  return { seller, answer }
}

test.each([
  ['7', 7_000],
  ['60', 60_000],
  ['0', 250],
  ['-1', 1_000],
  ['1.5', 1_000],
  ['tomorrow', 1_000],
  ['Sat, 28 Nov 2026 12:00:20 GMT', 20_000],
  ['Sat, 28 Nov 2026 11:00:00 GMT', 250],
])('args: after “Retry-After: %s”, presents a pending payment again in %d ms', async (retryAfter, ms) => {
  const { seller, answer } = failOnce({ 'retry-after': retryAfter, date })
  await vi.advanceTimersByTimeAsync(ms - 1)
  expect(seller.asked).toBe(1)
  await vi.advanceTimersByTimeAsync(1)
  expect(seller.asked).toBe(2)
  expect((await answer).status).toBe(200)
})

test('args: compares a date in Retry-After with the local clock if the response has no date', async () => {
  vi.setSystemTime(Date.parse(date))
  const { seller, answer } = failOnce({ 'retry-after': 'Sat, 28 Nov 2026 12:00:05 GMT' })
  await vi.advanceTimersByTimeAsync(4_999)
  expect(seller.asked).toBe(1)
  await vi.advanceTimersByTimeAsync(1)
  expect((await answer).status).toBe(200)
})

test.each([
  ['61', 503, 'settlement_pending'],
  ['120', 503, ''],
  ['86400', 502, ''],
  ['300', 409, 'payment_replayed'],
  ['Sat, 28 Nov 2026 12:02:00 GMT', 504, ''],
])(
  'behavior: does not wait if Retry-After is too long (%s), and returns the first response (status %d)',
  async (retryAfter, status, code) => {
    const { seller, answer } = failOnce({ 'retry-after': retryAfter, date }, status, code)
    expect((await answer).status).toBe(status)
    await vi.advanceTimersByTimeAsync(3_600_000)
    expect(seller.asked).toBe(1)
  },
)

test.each(['overloaded', 'provider_limit_exceeded', 'sales_stopped', 'token_paused'])(
  'behavior: does not present a payment again after a 503 with the code %s, because the gateway did not accept the payment',
  async (code) => {
    const { seller, answer } = failOnce({}, 503, code)
    expect((await answer).status).toBe(503)
    await vi.advanceTimersByTimeAsync(3_600_000)
    expect(seller.asked).toBe(1)
  },
)
