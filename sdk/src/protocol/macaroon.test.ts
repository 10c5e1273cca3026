import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import type { Address } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/macaroons.json' with { type: 'json' }
import { BaseError } from './errors.ts'
import { attenuateMacaroon, type Hmac, mintMacaroon, parseMacaroon, verifyMacaroon } from './macaroon.ts'

const hmac: Hmac = (key, data) => createHmac('sha256', key).update(data).digest()
const secret = { kid: vectors.secret.kid, key: Buffer.from(vectors.secret.key, 'hex') }
const otherSecret = { kid: 'k0', key: Buffer.alloc(32, 0x33) }
const terms = {
  ...vectors.terms,
  asset: vectors.terms.asset as Address,
  payTo: vectors.terms.payTo as Address,
  feePayTo: vectors.terms.feePayTo as Address,
  amount: BigInt(vectors.terms.amount),
  feeAmount: BigInt(vectors.terms.feeAmount),
}
const request = {
  ...vectors.request,
  payer: vectors.request.payer as Address,
  amount: BigInt(vectors.request.amount),
}
const minted = mintMacaroon({ secret, terms, caveats: vectors.caveats, hmac })
const options = {
  secrets: [otherSecret, secret],
  hmac,
  now: vectors.now,
  notBefore: vectors.notBefore,
  request,
}

function codeOf(run: () => unknown): string {
  try {
    run()
    return 'valid'
  } catch (error) {
    if (error instanceof BaseError) return error.code
    throw error
  }
}

describe('mintMacaroon', () => {
  test('default: mints the macaroon of the test vector', () => {
    expect(minted).toBe(vectors.macaroons[0]?.macaroon)
  })

  test('error: rejects a key id or request id that does not fit into the identifier', () => {
    const caveats = vectors.caveats
    expect(() => mintMacaroon({ secret: { ...secret, kid: 'a b' }, terms, caveats, hmac })).toThrow(/kid/)
    expect(() => mintMacaroon({ secret, terms: { ...terms, requestId: 'req_1' }, caveats, hmac })).toThrow(
      /requestId/,
    )
  })
})

describe('verifyMacaroon', () => {
  test('default: returns the terms and the caveats', () => {
    expect(verifyMacaroon(minted, options)).toEqual({
      terms: { ...terms, version: 1, kid: secret.kid },
      caveats: vectors.caveats,
    })
  })

  test.each(vectors.macaroons)(
    'behavior: judges the macaroon of the test vector "$name" as $result',
    (vector) => {
      const own = {
        ...options,
        now: vector.now ?? options.now,
        notBefore: vector.notBefore ?? options.notBefore,
        request: { ...request, ...(vector.request as Partial<typeof request>) },
      }
      expect(codeOf(() => verifyMacaroon(vector.macaroon, own))).toBe(vector.result)
      if (!vector.caveats) return
      const { maxAmount, ...caveats } = vector.caveats as { maxAmount?: string }
      expect(verifyMacaroon(vector.macaroon, own).caveats).toMatchObject({
        ...caveats,
        ...(maxAmount && { maxAmount: BigInt(maxAmount) }),
      })
    },
  )

  test('error: rejects any flipped bit', () => {
    const bytes = Buffer.from(minted, 'base64url')
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const flipped = Buffer.from(bytes)
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
      expect(codeOf(() => verifyMacaroon(flipped.toString('base64url'), options))).not.toBe('valid')
    }
  })

  test('error: rejects any changed character', () => {
    for (let i = 0; i < minted.length; i++) {
      for (const char of ['A', 'B', '_', '=', ' ']) {
        const changed = minted.slice(0, i) + char + minted.slice(i + 1)
        if (changed !== minted) expect(codeOf(() => verifyMacaroon(changed, options))).not.toBe('valid')
      }
    }
  })

  test('error: rejects a macaroon of an unknown or a retired secret', () => {
    expect(codeOf(() => verifyMacaroon(minted, { ...options, secrets: [] }))).toBe('macaroon_invalid')
    expect(codeOf(() => verifyMacaroon(minted, { ...options, secrets: [otherSecret] }))).toBe(
      'macaroon_invalid',
    )
  })
})

describe('attenuateMacaroon', () => {
  test('default: adds caveats that verifyMacaroon returns', () => {
    const narrowed = attenuateMacaroon(
      minted,
      { expiry: vectors.now + 30, payer: request.payer, maxAmount: 50_000n },
      hmac,
    )
    expect(verifyMacaroon(narrowed, options).caveats).toEqual({
      ...vectors.caveats,
      expiry: vectors.now + 30,
      payer: request.payer,
      maxAmount: 50_000n,
    })
  })

  test('behavior: equals the output of the npm package macaroon', () => {
    const vector = vectors.macaroons.find(({ name }) => name === 'payer')
    expect(attenuateMacaroon(minted, { payer: request.payer }, hmac)).toBe(vector?.macaroon)
  })

  test('behavior: can only restrict, never extend', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 4_000_000_000 }),
        fc.bigInt(0n, 2n ** 63n),
        (expiry, maxAmount) => {
          const narrowed = attenuateMacaroon(minted, { expiry, maxAmount }, hmac)
          const isNarrower = expiry > vectors.now && maxAmount >= request.amount
          expect(codeOf(() => verifyMacaroon(narrowed, options)) === 'valid').toBe(isNarrower)
        },
      ),
    )
  })

  test('error: rejects more caveats than a macaroon may have', () => {
    let text = minted
    expect(() => {
      for (let i = 0; i < 100; i++) text = attenuateMacaroon(text, { maxAmount: 50_000n }, hmac)
    }).toThrow(expect.objectContaining({ code: 'macaroon_invalid' }))
  })
})

test('behavior: parseMacaroon throws only ProtocolError, for any input', () => {
  const bytes = Buffer.from(minted, 'base64url')
  const mutated = fc
    .array(fc.tuple(fc.nat(bytes.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 })
    .map((changes) => {
      const copy = Buffer.from(bytes)
      for (const [at, byte] of changes) copy.writeUInt8(byte, at)
      return copy.toString('base64url')
    })
  const random = fc.uint8Array({ maxLength: 300 }).map((value) => Buffer.from(value).toString('base64url'))
  fc.assert(
    fc.property(fc.oneof(fc.string(), random, mutated), (text) => {
      expect(['valid', 'macaroon_invalid', 'unknown_caveat']).toContain(codeOf(() => parseMacaroon(text)))
    }),
  )
})
