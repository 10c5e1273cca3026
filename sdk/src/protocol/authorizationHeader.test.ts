import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import payments from '../../../test/vectors/payments.json' with { type: 'json' }
import {
  encodeAuthorizationHeader,
  mockAuthorizationHeader,
  parseAuthorizationHeader,
} from './authorizationHeader.ts'

const payment = { macaroon: 'AgEA_-', payloads: ['a,b', 'c,d'] as [string, string] }

describe('parseAuthorizationHeader', () => {
  test('default: splits a payment into macaroon and payloads', () => {
    expect(parseAuthorizationHeader('x402 AgEA_-:a,b:c,d')).toEqual({ kind: 'payment', ...payment })
  })

  test.each(['AgEA', 'AgEA-_', 'AgEA+/', 'AgEA+w==', 'AgEA+/A='])(
    'args: accepts the macaroon %s',
    (macaroon) => {
      expect(parseAuthorizationHeader(`x402 ${macaroon}:a,b:c,d`)).toEqual({
        ...payment,
        kind: 'payment',
        macaroon,
      })
    },
  )

  test.each(['X402', 'Tollkeeper', 'tollkeeper', 'the service', 'The Service', 'x402 '])(
    'args: accepts the scheme %j',
    (scheme) => {
      expect(parseAuthorizationHeader(`${scheme} AgEA_-:a,b:c,d`)).toEqual({ kind: 'payment', ...payment })
    },
  )

  test.each([
    undefined,
    null,
    '',
    'Bearer abc',
    'Basic eDQwMg==',
    'x4021 a:b:c',
    'the services a:b:c',
    ' x402 a:b:c',
  ])('behavior: %j is not a payment', (value) => {
    expect(parseAuthorizationHeader(value)).toEqual({ kind: 'absent' })
  })

  test('behavior: reads mock credentials', () => {
    expect(parseAuthorizationHeader(mockAuthorizationHeader)).toEqual({ kind: 'mock' })
    expect(parseAuthorizationHeader('Tollkeeper mock:mock')).toEqual({ kind: 'mock' })
  })

  test.each([
    'x402',
    'x402 ',
    'x402 a',
    'x402 a:',
    'x402 :b',
    'x402 a:b:c:d',
    'x402 :b:c',
    'x402 a::c',
    'x402 a:b:',
    'x402 =a:b:c',
    'x402 a===:b:c',
    'x402 a+_:b:c',
    'x402 a b:c:d',
    'x402 mock:mock:',
    `x402 a:b:${'c'.repeat(8192)}`,
  ])('error: rejects %.30s', (value) => {
    expect(() => parseAuthorizationHeader(value)).toThrow(
      expect.objectContaining({ code: 'invalid_authorization_header' }),
    )
  })

  test('behavior: accepts a header with two signatures of the maximum length', () => {
    const long =
      payments.payments[4]?.authorization.payload.replace(/0x[0-9a-f]*$/, `0x${'ab'.repeat(1024)}`) ?? ''
    const header = encodeAuthorizationHeader({ macaroon: 'a'.repeat(600), payloads: [long, long] })
    expect(parseAuthorizationHeader(header)).toMatchObject({ payloads: [long, long] })
  })

  test('behavior: throws only ProtocolError, for any input', () => {
    fc.assert(
      fc.property(fc.string(), fc.constantFrom('', 'x402 ', 'the service '), (text, scheme) => {
        try {
          parseAuthorizationHeader(scheme + text)
        } catch (error) {
          expect(error).toMatchObject({ code: 'invalid_authorization_header' })
        }
      }),
    )
  })
})

test('behavior: reads a header with one payload that pays both the provider and the platform', () => {
  const both = { macaroon: 'AgEA', payloads: ['a,b'] as [string] }
  expect(encodeAuthorizationHeader(both)).toBe('x402 AgEA:a,b')
  expect(parseAuthorizationHeader('x402 AgEA:a,b')).toEqual({ kind: 'payment', ...both })
})

test('behavior: parsing an encoded payment returns the same payment', () => {
  expect(parseAuthorizationHeader(encodeAuthorizationHeader(payment))).toEqual({
    kind: 'payment',
    ...payment,
  })
})
