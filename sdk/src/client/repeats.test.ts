import { describe, expect, test } from 'vitest'
import { payloads } from '../../test/signedPayment.ts'
import { parsePayload } from '../protocol/payload.ts'
import { createOpenPayments } from './repeats.ts'
import type { SignedPayment } from './signedPayment.ts'

const asked = { method: 'GET', url: 'https://api.example/weather' }
const payment: SignedPayment = { requestId: 'req_1', network: 'base', macaroon: 'm', amount: 1n, payloads }
const end = Number(parsePayload(payloads[0]).validBefore)

async function openPayments() {
  const open = createOpenPayments((one: SignedPayment) => one)
  await open.add(asked, payment)
  return open
}

describe('an open payment', () => {
  test('default: is presented again with the same request, once', async () => {
    const open = await openPayments()
    expect(await open.take(asked, end - 1)).toBe(payment)
    expect(await open.take(asked, end - 1)).toBeUndefined()
  })

  test('behavior: is forgotten once it can not settle any more', async () => {
    expect(await (await openPayments()).take(asked, end)).toBeUndefined()
  })

  test.each([
    ['method', { method: 'POST' }],
    ['URL', { url: 'https://api.example/weather?city=1' }],
    ['body', { body: 'rain' }],
  ])('error: is not presented with another %s', async (_, change) => {
    expect(await (await openPayments()).take({ ...asked, ...change }, end - 1)).toBeUndefined()
  })

  test.each([
    ['a stream', new ReadableStream()],
    ['a body without a digest', async () => undefined],
    ['a body that can not be read', async () => Promise.reject(new Error('broken'))],
  ])('error: is not remembered for %s, which can not be compared', async (_, body) => {
    const open = createOpenPayments((one: SignedPayment) => one)
    const streamed = { ...asked, body }
    await open.add(streamed, payment)
    expect(await open.take(streamed, end - 1)).toBeUndefined()
  })
})
