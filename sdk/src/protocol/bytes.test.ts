import fc from 'fast-check'
import { toHex } from 'viem'
import { describe, expect, test, vi } from 'vitest'
import * as own from './bytes.ts'

const { bytesToHex, concatBytes, equalBytes, hexToBytes, readUint, writeUint } = own

const bytes = fc.uint8Array({ maxLength: 200 })

describe('hex', () => {
  test('behavior: agrees with viem in both directions', () => {
    fc.assert(
      fc.property(bytes, (value) => {
        expect(bytesToHex(value)).toBe(toHex(value))
        expect(hexToBytes(toHex(value))).toEqual(new Uint8Array(value))
      }),
    )
  })

  test('args: accepts upper-case digits', () => {
    expect(hexToBytes('0xABCDEF')).toEqual(Uint8Array.of(0xab, 0xcd, 0xef))
  })
})

/**
 * Loads the module as in browsers and workers. Node's Buffer stays defined, because sockets of other tests in this process need it.
 */
async function portable(): Promise<typeof own> {
  vi.resetModules()
  const isEncoding = vi.spyOn(Buffer, 'isEncoding').mockReturnValue(false)
  try {
    return await import('./bytes.ts')
  } finally {
    isEncoding.mockRestore()
  }
}

describe.each([
  ['with Node’s codecs', own],
  ['without Node’s codecs, as in browsers', await portable()],
])(
  'base64url and UTF-8 %s',
  (_, { decodeBase64url, decodeEitherBase64, encodeBase64, encodeBase64url, encodeUtf8 }) => {
    test('behavior: agrees with Node in both directions', () => {
      fc.assert(
        fc.property(bytes, (value) => {
          const text = encodeBase64url(value)
          expect(text).toBe(Buffer.from(value).toString('base64url'))
          expect(decodeBase64url(text)).toEqual(new Uint8Array(value))
          // If the bytes are a view of a longer buffer, only the view is encoded.
          expect(encodeBase64url(Uint8Array.of(7, ...value, 7).subarray(1, -1))).toBe(text)
        }),
      )
    })

    test('behavior: decodeEitherBase64 reads both base64 and base64url', () => {
      fc.assert(
        fc.property(bytes, (value) => {
          const text = encodeBase64(value)
          expect(text).toBe(Buffer.from(value).toString('base64'))
          for (const spelling of [text, encodeBase64url(value)])
            expect(decodeEitherBase64(spelling)).toEqual(new Uint8Array(value))
        }),
      )
      fc.assert(
        fc.property(fc.string({ unit: fc.constantFrom(...'ABab01-_=+/ é') }), (text) => {
          const decoded = decodeEitherBase64(text)
          if (decoded) expect([encodeBase64(decoded), encodeBase64url(decoded)]).toContain(text)
        }),
      )
      for (const text of ['AA', 'AA==', 'A-8=', 'A+8', 'AB==', 'AA=', '+_8=']) {
        const isCanonical = ['AA', 'AA=='].includes(text)
        expect(decodeEitherBase64(text) !== undefined, text).toBe(isCanonical)
      }
    })

    test('behavior: accepts only one spelling of the same bytes', () => {
      fc.assert(
        fc.property(fc.string({ unit: fc.constantFrom(...'ABab01-_=+/ é') }), (text) => {
          const decoded = decodeBase64url(text)
          if (decoded) expect(encodeBase64url(decoded)).toBe(text)
        }),
      )
    })

    test.each(['A', 'AAAAA', 'AA==', 'AB', 'AAB', 'A+', 'A/', 'A A', 'AAA\n', 'éA'])(
      'error: rejects %j',
      (text) => {
        expect(decodeBase64url(text)).toBeUndefined()
      },
    )

    test('behavior: encodes UTF-8 like TextEncoder, also for a single surrogate', () => {
      for (const text of ['', 'a', 'é€😀', '\ud83d', 'x\udc00y'])
        expect(new Uint8Array(encodeUtf8(text))).toEqual(new TextEncoder().encode(text))
    })
  },
)

describe('uint', () => {
  test('behavior: reads the same value that was written', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), fc.bigInt(0n, 2n ** 64n - 1n), (size, any) => {
        const value = BigInt.asUintN(size * 8, any)
        const target = new Uint8Array(size + 2)
        writeUint(target, 1, size, value)
        expect(readUint(target, 1, size)).toBe(value)
        expect([target[0], target.at(-1)]).toEqual([0, 0])
      }),
    )
  })

  test('args: writes an integer as 32 bytes', () => {
    const word = new Uint8Array(32)
    writeUint(word, 0, 32, 2n ** 64n - 1n)
    expect(bytesToHex(word)).toBe(toHex(2n ** 64n - 1n, { size: 32 }))
  })
})

test('behavior: concatenates bytes, and compares them', () => {
  const whole = concatBytes(Uint8Array.of(1), new Uint8Array(), Uint8Array.of(2, 3))
  expect(whole).toEqual(Uint8Array.of(1, 2, 3))
  expect(equalBytes(whole, Uint8Array.of(1, 2, 3))).toBe(true)
  expect(equalBytes(whole, Uint8Array.of(1, 2, 4))).toBe(false)
  expect(equalBytes(whole, Uint8Array.of(1, 2))).toBe(false)
})
