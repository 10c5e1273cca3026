import fc from 'fast-check'
import { type Address, type Hex, hashTypedData, numberToHex, recoverAddress } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/payments.json' with { type: 'json' }
import {
  authorizationDigest,
  compactSignature,
  domainSeparator,
  eip712Domain,
  hashAuthorization,
  isCanonicalSignature,
  recoverableSignature,
  splitSignature,
  transferWithAuthorizationTypes,
} from './eip3009.ts'
import { networkByName, networks } from './networks.ts'
import { parsePayload } from './payload.ts'

const signature = vectors.payments[0]?.authorization.signature as Hex
const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

function signatureOf(r: bigint, s: bigint, v: number): Hex {
  return `0x${[r, s].map((word) => numberToHex(word, { size: 32 }).slice(2)).join('')}${v.toString(16).padStart(2, '0')}`
}

describe('digest', () => {
  test.each(vectors.payments)(
    'default: equals the digest of the test vector "$name"',
    ({ network, domain, authorization, fee, domainSeparator: expected }) => {
      const separator = domainSeparator(
        eip712Domain(networkByName(network), domain.verifyingContract as Address),
      )
      expect(separator).toBe(expected)
      for (const half of fee ? [authorization, fee] : [authorization]) {
        expect(authorizationDigest(separator, parsePayload(half.payload))).toBe(half.digest)
      }
    },
  )

  test('behavior: equals viem’s hashTypedData', () => {
    const domain = eip712Domain(networks.base)
    const separator = domainSeparator(domain)
    const hex = (size: number) =>
      fc
        .uint8Array({ minLength: size, maxLength: size })
        .map((bytes) => `0x${Buffer.from(bytes).toString('hex')}` as Hex)
    const messages = fc.record({
      from: hex(20),
      to: hex(20),
      value: fc.bigInt(0n, 2n ** 64n - 1n),
      validAfter: fc.bigInt(0n, 2n ** 40n - 1n),
      validBefore: fc.bigInt(0n, 2n ** 40n - 1n),
      nonce: hex(32),
    })
    fc.assert(
      fc.property(messages, (message) => {
        expect(authorizationDigest(separator, message)).toBe(
          hashTypedData({
            domain,
            types: transferWithAuthorizationTypes,
            primaryType: 'TransferWithAuthorization',
            message,
          }),
        )
      }),
    )
  })

  test('behavior: hashes a small value correctly after a large value was hashed in the same buffer', () => {
    const separator = domainSeparator(eip712Domain(networks.base))
    const large = parsePayload(
      vectors.payments.find(({ name }) => name === 'maximum values')?.authorization.payload ?? '',
    )
    const small = parsePayload(
      vectors.payments.find(({ name }) => name === 'minimum values')?.authorization.payload ?? '',
    )
    const first = hashAuthorization(separator, small)
    hashAuthorization(separator, large)
    expect(hashAuthorization(separator, small)).toEqual(first)
  })
})

test('error: requires the USDC address for localhost', () => {
  expect(() => eip712Domain(networks.localhost)).toThrow(/localhost/)
})

describe('isCanonicalSignature', () => {
  test('default: accepts a private key’s signature', () => {
    expect(isCanonicalSignature(signature)).toBe(true)
  })

  test.each([
    ['it has 64 bytes', signature.slice(0, -2) as Hex],
    ['it has 66 bytes', `${signature}00` as Hex],
    ['v is 0', `${signature.slice(0, -2)}00` as Hex],
    ['v is 29', `${signature.slice(0, -2)}1d` as Hex],
    ['r is 0', signatureOf(0n, 1n, 27)],
    ['r is the curve’s order', signatureOf(order, 1n, 27)],
    ['s is 0', signatureOf(1n, 0n, 27)],
    ['s is in the upper half of the curve’s order', signatureOf(1n, order / 2n + 1n, 27)],
  ])('error: rejects a signature if %s', (_, malformed) => {
    expect(isCanonicalSignature(malformed)).toBe(false)
  })

  test('behavior: accepts the smallest and the largest valid values', () => {
    expect(isCanonicalSignature(signatureOf(order - 1n, order / 2n, 28))).toBe(true)
    expect(isCanonicalSignature(signatureOf(1n, 1n, 27))).toBe(true)
  })

  test('behavior: rejects a valid signature’s other form, which has s in the upper half of the curve’s order', () => {
    const { r, s, v } = splitSignature(signature)
    expect(isCanonicalSignature(signatureOf(BigInt(r), order - BigInt(s), 55 - v))).toBe(false)
  })
})

describe('compactSignature', () => {
  test.each(vectors.payments.filter(({ signatures }) => signatures.length === 0))(
    'default: shortens the signature of the test vector "$name"',
    ({ authorization, packed }) => {
      expect(compactSignature(authorization.signature as Hex)).toEqual({ r: packed.r, vs: packed.vs })
    },
  )

  test('behavior: returns a form from which the same signature can be restored', () => {
    const words = fc.bigInt(0n, 2n ** 256n - 1n)
    const fields = fc.tuple(words, words, fc.constantFrom(0, 26, 27, 28, 29, 255))
    fc.assert(
      fc.property(fields, ([r, s, v]) => {
        const compact = compactSignature(signatureOf(r, s, v))
        if (!compact) {
          expect(s === 0n || s >= 2n ** 255n || (v !== 27 && v !== 28)).toBe(true)
          return
        }
        const vs = BigInt(compact.vs)
        expect(signatureOf(BigInt(compact.r), vs & (2n ** 255n - 1n), 27 + Number(vs >> 255n))).toBe(
          signatureOf(r, s, v),
        )
      }),
    )
  })

  test('args: returns undefined if s is 0 or has its top bit set, or if the signature does not have 65 bytes', () => {
    expect(compactSignature(signatureOf(1n, 0n, 27))).toBeUndefined()
    expect(compactSignature(signatureOf(1n, 2n ** 255n, 27))).toBeUndefined()
    expect(compactSignature(`0x${'ab'.repeat(97)}`)).toBeUndefined()
  })
})

test('behavior: the payer can be recovered from recoverableSignature and the digest', async () => {
  for (const { authorization, signatures } of vectors.payments) {
    if (signatures.length > 0) continue
    const { rs, recovery } = recoverableSignature(authorization.signature as Hex)
    const recovered = await recoverAddress({
      hash: authorization.digest as Hex,
      signature: {
        r: `0x${Buffer.from(rs.subarray(0, 32)).toString('hex')}`,
        s: `0x${Buffer.from(rs.subarray(32)).toString('hex')}`,
        yParity: recovery,
      },
    })
    expect(recovered.toLowerCase()).toBe(authorization.from)
  }
})

test('error: splitSignature accepts only 65 bytes', () => {
  expect(() => splitSignature('0x1234')).toThrow(/65 bytes/)
})
