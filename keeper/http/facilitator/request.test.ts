import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { encodePaymentHeader } from '@tollkeeper/sdk/protocol/x402'
import { describe, expect, test } from 'vitest'
import cases from '../../../test/internet/cases/signatures.json' with { type: 'json' }
import { parseRequest } from './request.ts'

// Requests in the formats that various sellers send.

const served = [{ network: networks.base }] as ServedNetwork[]
const { message, domain } = cases
const signature = cases.signatures[0]?.value as string

const payment = (version: 1 | 2, authorization: object = {}, signed = signature) => {
  const payload = { signature: signed, authorization: { ...message, ...authorization } }
  const network = version === 1 ? 'base' : 'eip155:8453'
  const kind = { scheme: 'exact', network }
  return version === 1 ? { x402Version: 1, ...kind, payload } : { x402Version: 2, accepted: kind, payload }
}

const requirements = (version: 1 | 2, more: object = {}) => ({
  scheme: 'exact',
  network: version === 1 ? 'base' : 'eip155:8453',
  asset: domain.verifyingContract,
  payTo: message.to,
  ...(version === 1 ? { maxAmountRequired: '10000', resource: 'https://api.example/' } : { amount: '10000' }),
  ...more,
})

const plain = (version: 1 | 2) =>
  parseRequest(served, { paymentPayload: payment(version), paymentRequirements: requirements(version) })

const versions = [1, 2] as const

describe.each(versions)('x402 v%i', (version) => {
  const amount = version === 1 ? 'maxAmountRequired' : 'amount'

  test.each(cases.signatures.filter(({ right }) => right))(
    'args: accepts a signature in the form $form',
    ({ value }) => {
      const request = parseRequest(served, {
        paymentPayload: payment(version, {}, value),
        paymentRequirements: requirements(version),
      })
      expect(request).toEqual(plain(version))
    },
  )

  test.each<[string, object, object]>([
    ['numbers', { value: 10_000, validAfter: 0, validBefore: 1_900_000_000 }, { [amount]: 10_000 }],
    ['hex', { value: '0x2710', validAfter: '0x0', validBefore: '0x713fb300' }, { [amount]: '0x2710' }],
  ])('args: accepts %s instead of decimal text', (_, authorization, required) => {
    const request = parseRequest(served, {
      paymentPayload: payment(version, authorization),
      paymentRequirements: requirements(version, required),
    })
    expect(request).toEqual(plain(version))
  })

  test('args: accepts paymentHeader instead of paymentPayload', () => {
    const paymentHeader = encodePaymentHeader(payment(version))
    const body = { x402Version: version, paymentHeader, paymentRequirements: requirements(version) }
    expect(parseRequest(served, body)).toEqual(plain(version))
  })

  test('args: accepts a request without a resource', () => {
    const request = parseRequest(served, {
      paymentPayload: { ...payment(version), resource: null },
      paymentRequirements: requirements(version, { resource: null }),
    })
    expect(request).toMatchObject({ resource: '', declared: null })
  })

  test.each<[string, object, object, string]>([
    ['a fraction', { value: 1.5 }, {}, 'value: expected an integer'],
    ['a number that JSON may have rounded', { validBefore: 2 ** 53 }, {}, 'validBefore: expected an integer'],
    ['a list instead of a number', { validAfter: [] }, {}, 'validAfter: expected an integer'],
    ['a fractional amount in the requirements', {}, { [amount]: 0.1 }, `${amount}: expected an integer`],
    ['a negative value', { value: -1 }, {}, 'value must be a decimal integer'],
    ['a value of 2^64', { value: '0x10000000000000000' }, {}, 'value must be below 2^64'],
    ['a nonce without 0x', { nonce: message.nonce.slice(2) }, {}, 'nonce must be 0x and 64 hex digits'],
  ])('error: refuses %s and names the field', (_, authorization, required, expected) => {
    const parse = () =>
      parseRequest(served, {
        paymentPayload: payment(version, authorization),
        paymentRequirements: requirements(version, required),
      })
    expect(parse).toThrow(
      expect.objectContaining({ status: 400, message: expect.stringContaining(expected) }),
    )
  })

  test.each([
    ['is not text', 7],
    ['is not base64', '{}'],
    ['is not JSON', 'AAAA'],
    ['holds null', 'bnVsbA=='],
  ])('error: refuses a paymentHeader that %s', (_, paymentHeader) => {
    const body = { x402Version: version, paymentHeader, paymentRequirements: requirements(version) }
    expect(() => parseRequest(served, body)).toThrow(expect.objectContaining({ status: 400 }))
  })
})

test.each([undefined, null, 7, 'text', [], {}])('error: refuses a body of %j', (body) => {
  expect(() => parseRequest(served, body)).toThrow(expect.objectContaining({ status: 400 }))
})
