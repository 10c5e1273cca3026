import { setTimeout as wait } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { GatewayCall } from './gatewayClient.ts'
import { createLostVerifications, verifyOrGoOn } from './verification.ts'

/** Starts a gateway that accepts everything, but whose responses are lost until it recovers. */
function playGateway() {
  const state = {
    isAway: true,
    stored: '{"verified":true,"receipt":"a.b.c","paymentId":"pay_1"}',
    status: 200,
  }
  const fetch = async () => {
    if (state.isAway) throw new TypeError('fetch failed')
    return new Response(state.stored, { status: state.status })
  }
  return { state, options: { gatewayUrl: 'http://gateway.example', apiKey: 'tk_1', timeoutMs: 200, fetch } }
}

/** Returns a `pause` function whose pauses end one after another, only when the test calls `next`. */
function controlPauses() {
  const waiting: { ms: number; end: () => void }[] = []
  let onPause = () => {}
  /** Resolves when the code pauses. No call is in progress then. */
  async function begun(): Promise<void> {
    if (waiting.length > 0) return
    await new Promise<void>((resolve) => {
      onPause = resolve
    })
  }
  return {
    pause: (ms: number) =>
      new Promise<void>((end) => {
        waiting.push({ ms, end })
        onPause()
      }),
    begun,
    /** Ends the next pause. @returns the length of the pause in seconds. */
    next: async () => {
      await begun()
      const { ms, end } = waiting.shift() as (typeof waiting)[number]
      end()
      return ms / 1_000
    },
  }
}

const callOf = (macaroon: string): GatewayCall => ({
  path: '/verify',
  body: { macaroon },
  idempotencyKey: `key of ${macaroon}`,
})

describe('a verification whose outcome is unknown', () => {
  test('default: is retried until the gateway recovers, however long the outage is, and its payment is then voided', async () => {
    const { state, options } = playGateway()
    const { pause, next, begun } = controlPauses()
    const voided = Promise.withResolvers<string>()
    const works: Promise<unknown>[] = []
    const answer = await verifyOrGoOn(options, callOf('one'), {
      lost: createLostVerifications(),
      voidPayment: async ({ paymentId }) => {
        voided.resolve(paymentId)
        return { outcome: 'done' }
      },
      waitUntil: (work) => works.push(work),
      pause,
    })
    expect(answer).toBeUndefined()
    const seconds: number[] = []
    for (let n = 0; n < 8; n++) seconds.push(await next())
    expect(seconds).toEqual([3, 6, 16, 60, 60, 180, 600, 600])
    // These promises resolve during the outage, because `waitUntil` got only the first retries: a runtime isn't kept alive for hours.
    await Promise.all(works)
    await begun()
    state.isAway = false
    expect(await next()).toBe(600)
    expect(await voided.promise).toBe('pay_1')
  })

  test('behavior: causes a void, which is retried if the response to the void is lost, but not if the gateway refuses the void', async () => {
    const { state, options } = playGateway()
    const { pause, next } = controlPauses()
    const outcomes = ['unknown', 'unknown', 'refused'] as const
    const asked = Array.from({ length: 3 }, () => Promise.withResolvers<void>())
    let voids = 0
    const lost = createLostVerifications()
    await verifyOrGoOn(options, callOf('one'), {
      lost,
      voidPayment: async () => {
        asked[voids]?.resolve()
        return { outcome: outcomes[voids++] ?? 'done' }
      },
      waitUntil: undefined,
      pause,
    })
    state.isAway = false
    for (const one of asked) {
      await next()
      await one.promise
    }
    await expect.poll(() => lost.keyOf(callOf('one'))).toBeUndefined()
    expect(voids).toBe(3)
  })

  test('behavior: is no longer retried after the gateway reports that it has stored nothing', async () => {
    const { state, options } = playGateway()
    const { pause, next, begun } = controlPauses()
    const works: Promise<unknown>[] = []
    await verifyOrGoOn(options, callOf('one'), {
      lost: createLostVerifications(),
      voidPayment: () => Promise.reject(new Error('there is nothing to void')),
      waitUntil: (work) => works.push(work),
      pause,
    })
    for (let n = 0; n < 4; n++) await next()
    await Promise.all(works)
    await begun()
    Object.assign(state, { isAway: false, status: 404, stored: '{"code":"unknown_payment"}' })
    await next()
    const again = next().then(() => 'asked again')
    expect(await Promise.race([again, wait(300, 'ended')])).toBe('ended')
  })

  test('behavior: is forgotten when 1,000 newer verifications are remembered', () => {
    const lost = createLostVerifications()
    for (let n = 0; n <= 1_000; n++) lost.add(callOf(`number ${n}`))
    expect(lost.keyOf(callOf('number 0'))).toBeUndefined()
    expect(lost.keyOf(callOf('number 1'))).toBe('key of number 1')
    expect(lost.take(callOf('number 1000'))).toBe(true)
  })
})
