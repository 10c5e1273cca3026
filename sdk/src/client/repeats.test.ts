import { describe, expect, test } from 'vitest'
import { payloads } from '../../test/signedPayment.ts'
import { parsePayload } from '../protocol/payload.ts'
import { createOpenPayments } from './repeats.ts'
import type { SignedPayment } from './signedPayment.ts'

const asked = { method: 'GET', url: 'https://api.example/weather' }
const payment: SignedPayment = { requestId: 'req_1', network: 'base', macaroon: 'm', amount: 1n, payloads }
const end = Number(parsePayload(payloads[0]).validBefore)

function openPayments() {
  const open = createOpenPayments((one: SignedPayment) => one)
  open.add(asked, payment)
  return open
}

describe('an open payment', () => {
  test('default: is presented again with the same request, once', () => {
    const open = openPayments()
    expect(open.take(asked, end - 1)).toBe(payment)
    expect(open.take(asked, end - 1)).toBeUndefined()
  })

  test('behavior: is forgotten once it can not settle any more', () => {
    expect(openPayments().take(asked, end)).toBeUndefined()
  })

  test.each([
    ['method', { method: 'POST' }],
    ['URL', { url: 'https://api.example/weather?city=1' }],
    ['body', { body: 'rain' }],
  ])('error: is not presented with another %s', (_, change) => {
    expect(openPayments().take({ ...asked, ...change }, end - 1)).toBeUndefined()
  })

  test('error: is not remembered for a body that can not be compared', () => {
    const open = createOpenPayments((one: SignedPayment) => one)
    const streamed = { ...asked, body: new ReadableStream() }
    open.add(streamed, payment)
    expect(open.take(streamed, end - 1)).toBeUndefined()
  })
})
