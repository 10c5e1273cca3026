import { describe, expect, test } from 'vitest'
import { withHostileParts } from '../../../test/support/hostileJson.ts'
import { ProtocolError } from '../protocol/errors.ts'
import { readReply } from './demands.ts'
import { readToolPayment } from './dialects.ts'

// test/e2e/mcp.test.ts pays in each dialect, with the dialect's own programs where they are available.

const payment = { x402Version: 2, accepted: { scheme: 'exact' }, payload: {} }
const base64 = btoa(JSON.stringify(payment))
const credential = {
  challenge: {
    id: 'req_1',
    request: { methodDetails: { chainId: 8453 } },
    opaque: 'eyJtYWNhcm9vbiI6ImFiYyJ9',
  },
  payload: { type: 'authorization', from: '0xa', to: '0xb', value: '1', signature: '0xc' },
}

describe('readToolPayment', () => {
  test.each([
    ['no payment in a call without _meta', undefined, {}],
    ['no payment in _meta with other keys', { progressToken: 1 }, {}],
    ['an object of x402 v2', { 'x402/payment': payment }, { paymentSignature: base64 }],
    ['base64 of x402 v2', { 'x402/payment': base64 }, { paymentSignature: base64 }],
    ['base64 of x402 v1', { 'x402.payment': base64 }, { xPayment: base64 }],
    [
      'Tollkeeper’s own authorization',
      { 'tollkeeper/authorization': 'x402 abc' },
      { authorization: 'x402 abc' },
    ],
  ])('args: reads %s', (_, meta, headers) => expect(readToolPayment(meta)).toEqual(headers))

  test('args: reads a credential of MPP as a payment of scheme exact', () => {
    const { paymentSignature } = readToolPayment({ 'org.paymentauth/credential': credential })
    expect(JSON.parse(atob(paymentSignature ?? ''))).toEqual({
      x402Version: 2,
      accepted: { scheme: 'exact', network: 'eip155:8453', extra: { macaroon: 'abc' } },
      payload: { signature: '0xc', authorization: { from: '0xa', to: '0xb', value: '1' } },
    })
  })

  test('behavior: either reads a call or throws a ProtocolError, whatever values the payment’s fields have', () => {
    const calls = [payment, credential].flatMap((value) =>
      ['x402/payment', 'x402.payment', 'org.paymentauth/credential', 'tollkeeper/authorization'].flatMap(
        (key) => [...withHostileParts(value)].map((hostile) => ({ [key]: hostile })),
      ),
    )
    for (const meta of calls) {
      try {
        readToolPayment(meta)
      } catch (error) {
        expect(error).toBeInstanceOf(ProtocolError)
      }
    }
  })

  test.each([
    ['two payments', { 'x402/payment': base64, 'x402.payment': base64 }],
    ['a number instead of a payment', { 'x402/payment': 1 }],
    ['an object under the key of x402 v1, which takes base64', { 'x402.payment': payment }],
    ['a payment that is too long', { 'x402/payment': { ...payment, more: 'x'.repeat(12_288) } }],
    ['an incomplete credential of MPP', { 'org.paymentauth/credential': { challenge: {}, payload: {} } }],
  ])('error: rejects %s', (_, meta) => {
    expect(() => readToolPayment(meta)).toThrow(expect.objectContaining({ code: 'invalid_payload' }))
  })
})

describe('readReply', () => {
  const url = 'mcp://tool/forecast'
  const content = [{ type: 'text' as const, text: 'text' }]

  test('behavior: does not mistake a tool’s own error for a request for payment, whatever JSON it contains', () => {
    for (const text of ['no weather', '{"accepts":[]}', '{"x402Version":3,"accepts":[{}]}', '[1]', 'null']) {
      const reply = readReply({ isError: true, content: [{ type: 'text', text }] }, url)
      expect([reply.status, reply.demand]).toEqual([200, undefined])
    }
  })

  test('behavior: omits values that a header can’t contain, and replaces an invalid error status with 500', () => {
    const own = { receipt: 'a\nb', paymentId: 7, status: 'verified', charged: 'x'.repeat(20_000) }
    const { headers } = readReply({ content, _meta: { 'tollkeeper/receipt': own } }, url)
    expect([...headers]).toEqual([['service-payment-status', 'verified']])
    for (const status of [200, 99, '402', undefined]) {
      const _meta = { 'tollkeeper/problem': { status, code: 'payment_replayed' } }
      expect(readReply({ isError: true, content, _meta }, url).status).toBe(500)
    }
  })
})
