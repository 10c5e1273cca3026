import { describe, expect, test, vi } from 'vitest'
import { payloads } from '../../test/signedPayment.ts'
import { parsePayload } from '../protocol/payload.ts'
import type { PaymentScope } from './paymentStore.ts'
import { createOpenPayments } from './repeats.ts'
import type { SignedPayment } from './signedPayment.ts'

const asked = { method: 'GET', url: 'https://api.example/weather' }
const payment: SignedPayment = { requestId: 'req_1', network: 'base', macaroon: 'm', amount: 1n, payloads }
const scope: PaymentScope = { payer: '0xA', network: 'base', gatewayUrl: 'https://gateway.example' }
const end = Number(parsePayload(payloads[0]).validBefore)

async function openPayments() {
  const open = createOpenPayments({ scope, log: () => {} })
  await open.add(asked, payment)
  return open
}

describe('an open payment', () => {
  test('default: is presented again, but only once, if the same request is repeated', async () => {
    const open = await openPayments()
    expect(await open.take(asked, end - 1)).toBe(payment)
    expect(await open.take(asked, end - 1)).toBeUndefined()
  })

  test('behavior: is forgotten when the caller presents it, or an equal copy of it, explicitly', async () => {
    const open = await openPayments()
    open.forget({ ...payment, payloads: ['another', 'payment'] })
    open.forget({ ...payment, payloads: [...payloads] })
    expect(await open.take(asked, end - 1)).toBeUndefined()
  })

  test('behavior: is forgotten when it can no longer settle', async () => {
    expect(await (await openPayments()).take(asked, end)).toBeUndefined()
  })

  test.each([
    ['method', { method: 'POST' }],
    ['URL', { url: 'https://api.example/weather?city=1' }],
    ['body', { body: 'rain' }],
    ['range', { headers: new Headers({ range: 'bytes=1000-' }) }],
    ['language', { headers: new Headers({ 'accept-language': 'pt' }) }],
  ])('error: is not presented with a request that has another %s', async (_, change) => {
    const open = await openPayments()
    expect(await open.take({ ...asked, ...change }, end - 1)).toBeUndefined()
    expect(await open.take(asked, end - 1)).toBe(payment)
  })

  test('behavior: is presented again if the request differs only in headers that don’t affect the response', async () => {
    const headers = new Headers({ traceparent: '00-1-1-01', 'accept-language': '*' })
    expect(await (await openPayments()).take({ ...asked, headers }, end - 1)).toBe(payment)
  })

  test('behavior: is used by only one of several concurrent requests', async () => {
    const open = await openPayments()
    const taken = await Promise.all([open.take(asked, end - 1), open.take(asked, end - 1)])
    // Each of the two calls first hashes the body, and either call may finish first.
    expect(taken.filter((found) => found)).toEqual([payment])
  })

  test.each([
    ['the method differs', { method: 'PUT' }, end - 1],
    ['the URL differs', { url: 'https://api.example/other' }, end - 1],
    ['the payment can no longer settle', {}, end],
  ])('behavior: is not presented, and the request’s body is not read, if %s', async (_, change, now) => {
    const open = await openPayments()
    const body = vi.fn(async () => 'digest')
    expect(await open.take({ ...asked, body, ...change }, now)).toBeUndefined()
    expect(body).not.toHaveBeenCalled()
  })

  test.each([
    ['a stream', new ReadableStream()],
    ['a body without a digest', async () => undefined],
    ['an unreadable body', async () => Promise.reject(new Error('broken'))],
  ])(
    'error: is not remembered for a request with %s, because no later request can be compared with it',
    async (_, body) => {
      const open = createOpenPayments({ scope, log: () => {} })
      const streamed = { ...asked, body }
      await open.add(streamed, payment)
      expect(await open.take(streamed, end - 1)).toBeUndefined()
    },
  )
})
