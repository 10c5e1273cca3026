import fc from 'fast-check'
import type { Address, Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/payloads.json' with { type: 'json' }
import payments from '../../../test/vectors/payments.json' with { type: 'json' }
import { ProtocolError } from './errors.ts'
import { encodePayload, parsePayload, type SignedAuthorization } from './payload.ts'
import { normalizeSignature } from './signature.ts'

type Wire = Record<Exclude<keyof SignedAuthorization, 'primaryType'>, string>

function toAuthorization(wire: Wire): SignedAuthorization {
  return {
    from: wire.from as Address,
    to: wire.to as Address,
    value: BigInt(wire.value),
    validAfter: BigInt(wire.validAfter),
    validBefore: BigInt(wire.validBefore),
    nonce: wire.nonce as Hex,
    signature: wire.signature as Hex,
  }
}

describe('parsePayload', () => {
  test.each(vectors.valid)('args: reads a payload: $name', ({ payload, authorization }) => {
    expect(parsePayload(payload)).toEqual(toAuthorization(authorization))
  })

  test.each(payments.payments)('behavior: reads the signed payment $name', ({ authorization }) => {
    const parsed = parsePayload(authorization.payload)
    expect(parsed).toEqual(toAuthorization(authorization))
    expect(encodePayload(parsed)).toBe(authorization.payload)
  })

  test.each(vectors.invalid)('error: rejects a payload: $name', ({ payload, field }) => {
    const parse = () => parsePayload(payload)
    expect(parse).toThrow(ProtocolError)
    expect(parse).toThrow(expect.objectContaining({ code: 'invalid_payload' }))
    if (field) expect(parse).toThrow(expect.objectContaining({ details: { field } }))
  })

  test('behavior: throws only ProtocolError, for any input', () => {
    const near = fc.array(fc.constantFrom('0x', '0', '1', ',', 'a', 'F', '-', '.', ' ', '\n', '\0', 'é'), {
      maxLength: 60,
    })
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          near.map((parts) => parts.join('')),
        ),
        (text) => {
          try {
            parsePayload(text)
          } catch (error) {
            expect(error).toMatchObject({ name: 'ProtocolError', code: 'invalid_payload' })
          }
        },
      ),
    )
  })
})

test('behavior: parsing an encoded authorization returns the same authorization', () => {
  const hex = (minLength: number, maxLength = minLength) =>
    fc.uint8Array({ minLength, maxLength }).map((bytes) => `0x${Buffer.from(bytes).toString('hex')}` as Hex)
  const authorizations: fc.Arbitrary<SignedAuthorization> = fc.record({
    from: hex(20),
    to: hex(20),
    value: fc.bigInt(0n, 2n ** 64n - 1n),
    validAfter: fc.bigInt(0n, 2n ** 40n - 1n),
    validBefore: fc.bigInt(0n, 2n ** 40n - 1n),
    nonce: hex(32),
    signature: hex(65, 1024),
  })
  fc.assert(
    fc.property(authorizations, (authorization) => {
      const signature = normalizeSignature(authorization.signature)
      expect(parsePayload(encodePayload(authorization))).toEqual({ ...authorization, signature })
    }),
  )
})
