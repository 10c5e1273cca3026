import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { authorization, sellerOptions } from '../../test/signedPayment.ts'
import { createGate } from './gate.ts'
import { createVoids } from './voids.ts'

// In these tests, a handler fails after the gateway has verified the payment, while the gateway is unreachable.

const tab = { id: `tab_${'1'.repeat(32)}`, sequence: 3 }
const request = { method: 'GET', url: 'https://api.example/weather', authorization }

/** Starts a gateway that verifies payments, and then is unreachable until it recovers. */
function playGateway(verified: object) {
  const state = { isAway: false, status: 200 }
  const voided: string[] = []
  const fetch = async (url: string) => {
    if (state.isAway) throw new TypeError('fetch failed')
    const { pathname } = new URL(url)
    if (pathname === '/verify') return Response.json(verified)
    voided.push(pathname)
    return Response.json(state.status === 200 ? { receipt: 'd.e.f' } : { code: 'payment_claimed' }, {
      status: state.status,
    })
  }
  const gate = createGate({ ...sellerOptions, endpointId: 'ep_1', apiKey: 'tk_1', fetch, warn: () => {} })
  return { state, voided, gate }
}

const verified = { verified: true, receipt: 'a.b.c', paymentId: 'pay_1' }

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
})

describe.each([
  ['a payment', verified, '/payments/pay_1/void'],
  ['a request on a tab', { ...verified, tab }, `/tabs/${tab.id}/requests/3/charge`],
])('after a handler failed while the gateway is unreachable, the void of %s', (_, answer, path) => {
  async function failToVoid() {
    const { state, voided, gate } = playGateway(answer)
    const works: Promise<unknown>[] = []
    const decision = await gate.check(request, (work) => works.push(work))
    if (decision.kind !== 'serve') throw new Error('it is not served')
    state.isAway = true
    const isVoided = gate.void(decision)
    await vi.advanceTimersByTimeAsync(2_000)
    expect(await isVoided).toBe(false)
    return { state, voided, works }
  }

  test('default: is retried until the gateway recovers, however long the outage is', async () => {
    const { state, voided, works } = await failToVoid()
    await vi.advanceTimersByTimeAsync(4 * 3_600_000)
    // These promises resolve during the outage, because `waitUntil` got only the first retries: a runtime isn't kept alive for hours.
    await Promise.all(works)
    expect([voided, works.length]).toEqual([[], 1])
    state.isAway = false
    await vi.advanceTimersByTimeAsync(600_000)
    expect(voided).toEqual([path])
    await vi.advanceTimersByTimeAsync(3_600_000)
    expect(voided).toEqual([path])
  })

  test('behavior: is retried after three seconds at first, and never after a refusal', async () => {
    const { state, voided } = await failToVoid()
    Object.assign(state, { isAway: false, status: 409 })
    await vi.advanceTimersByTimeAsync(3_000)
    expect(voided).toEqual([path])
    await vi.advanceTimersByTimeAsync(3_600_000)
    expect(voided).toEqual([path])
  })
})

test('behavior: forgets the oldest void when a void is added to 1,000 others', async () => {
  const asked = new Set<string>()
  const voidPayment = async ({ paymentId }: { paymentId: string }) => {
    asked.add(paymentId)
    return { outcome: 'done' } as const
  }
  const voids = createVoids({ voidPayment })
  for (let n = 0; n <= 1_000; n++) voids.repeatLater({ paymentId: `pay_${n}` })
  await vi.advanceTimersByTimeAsync(3_000)
  expect([asked.size, asked.has('pay_0'), asked.has('pay_1')]).toEqual([1_000, false, true])
})
