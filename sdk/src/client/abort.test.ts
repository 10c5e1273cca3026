import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { clientOf, gatewayUrl } from '../../test/playProvider.ts'
import { payloads } from '../../test/signedPayment.ts'
import { eitherSignal, timeoutSignal } from './abort.ts'
import { askGateway } from './outcome.ts'
import { sendUntilAnswered } from './presentation.ts'
import { createTabGateway } from './tabGateway.ts'
import { startDeadline } from './transport.ts'

// Simulates React Native, whose AbortSignal has neither `timeout` nor `any`.

const { signal } = new AbortController()
const listeners = new Set<unknown>()
vi.spyOn(signal, 'addEventListener').mockImplementation((_, listener) => void listeners.add(listener))
vi.spyOn(signal, 'removeEventListener').mockImplementation((_, listener) => void listeners.delete(listener))

beforeEach(() => {
  vi.stubGlobal('AbortSignal', class OldSignal extends EventTarget {})
  vi.useFakeTimers()
  listeners.clear()
})

afterEach(() => {
  vi.unstubAllGlobals()
  vi.useRealTimers()
})

describe('a signal that combines two signals', () => {
  test.each([0, 1])(
    'default: fires with the reason of signal %i if that signal fires, and stops listening to the other signal',
    (index) => {
      const parts = [new AbortController(), new AbortController()] as const
      const both = eitherSignal(parts[0].signal, parts[1].signal)
      const other = vi.spyOn(parts[1 - index]?.signal as AbortSignal, 'removeEventListener')
      expect(both.aborted).toBe(false)
      parts[index]?.abort('stopped')
      expect([both.aborted, both.reason]).toEqual([true, 'stopped'])
      expect(other).toHaveBeenCalledOnce()
    },
  )

  test('behavior: has fired from the start if one of its two signals has already fired', () => {
    const own = new AbortController()
    own.abort('before')
    expect(eitherSignal(own.signal, signal).reason).toBe('before')
    expect(listeners.size).toBe(0)
  })

  test('behavior: stops its timer and removes its listeners when end() is called', () => {
    const both = eitherSignal(timeoutSignal(60_000), signal)
    expect([vi.getTimerCount(), listeners.size]).toEqual([1, 1])
    both.end?.()
    expect([vi.getTimerCount(), listeners.size]).toEqual([0, 0])
  })

  test('behavior: stops listening to the other signal when the timeout fires', () => {
    const both = eitherSignal(timeoutSignal(100), signal)
    vi.advanceTimersByTime(100)
    expect([both.reason.name, listeners.size]).toEqual(['TimeoutError', 0])
  })
})

test('behavior: startDeadline adds no listener if there is no timeout', () => {
  expect(startDeadline(undefined, signal).signal).toBe(signal)
  expect(listeners.size).toBe(0)
})

const json = (body: object) => async () => Response.json(body)
const payment = { requestId: 'req_1', network: 'base' as const, macaroon: 'm', amount: 1n, payloads }

test.each<[string, () => Promise<unknown>]>([
  ['a request', () => clientOf({ fetch: json({}) }).request('/free', { signal })],
  [
    'waitForSettlement',
    () => {
      const client = clientOf({ fetch: json({ payment_status: 'voided' }) })
      return client.waitForSettlement('pay_1', { signal }).catch(() => {})
    },
  ],
  [
    'settleNow',
    () => {
      const client = clientOf({ fetch: json({ txHash: `0x${'1'.repeat(64)}` }), facilitatorUrl: gatewayUrl })
      return client.settleNow(payment, { signal })
    },
  ],
  ['a request to the gateway', () => askGateway(json({}), gatewayUrl, payment, signal)],
  ['a request about a tab', () => createTabGateway(json({ closedAt: 'now' }), gatewayUrl).read('tab_1')],
  [
    'the wait for a pending settlement',
    () => {
      const headers = new Headers({ 'retry-after': '0' })
      const pending = { url: gatewayUrl, status: 503, headers, body: { code: 'settlement_pending' } }
      const send = vi.fn(async () => ({ ...pending, status: 200 })).mockResolvedValueOnce(pending)
      const settings = { pendingTimeoutMs: 30_000, log: () => {} }
      return sendUntilAnswered(send, startDeadline(undefined, signal), settings)
    },
  ],
])('behavior: %s leaves no timer and no listener behind', async (_, ask) => {
  const asked = ask()
  await vi.advanceTimersByTimeAsync(2_000)
  await asked
  expect([vi.getTimerCount(), listeners.size]).toEqual([0, 0])
})
