import { expect, test } from 'vitest'
import { authorization, payload, paymentSignature, xPayment } from '../../test/signedPayment.ts'
import { readPayment } from './presentedPayment.ts'

test('default: reads the payment of our own clients', () => {
  expect(readPayment({ paymentSignature })).toEqual({
    kind: 'payment',
    macaroon: 'AgEA',
    payloads: [payload],
    x402: { version: 2, network: 'base' },
  })
})

test('args: reads a payment of x402 v1', () => {
  const x402 = { version: 1, network: 'base' }
  expect(readPayment({ xPayment })).toEqual({
    kind: 'payment',
    macaroon: undefined,
    payloads: [payload],
    x402,
  })
})

test('behavior: accepts credentials of another scheme next to a payment', () => {
  expect(readPayment({ authorization: 'Bearer abc', paymentSignature }).kind).toBe('payment')
  expect(readPayment({ authorization: 'Bearer abc' }).kind).toBe('absent')
})

test.each([
  ['two x402 headers', { paymentSignature, xPayment }],
  ['the same payment in both x402 headers', { paymentSignature, xPayment: paymentSignature }],
  ['an x402 header next to our own header', { authorization, paymentSignature }],
  ['an x402 header next to mock credentials', { authorization: 'x402 mock:mock', xPayment }],
  ['an empty x402 header', { paymentSignature: '' }],
  ['an empty x402 header next to another x402 header', { paymentSignature: '', xPayment }],
  ['an x402 header that was sent twice', { paymentSignature: `${paymentSignature}, ${paymentSignature}` }],
])('error: rejects %s', (_, headers) => {
  expect(() => readPayment(headers)).toThrow(
    expect.objectContaining({ code: 'invalid_payload', status: 400 }),
  )
})
