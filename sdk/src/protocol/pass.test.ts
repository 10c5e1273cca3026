import { recoverTypedDataAddress } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { describe, expect, test } from 'vitest'
import { encodeBase64url, encodeUtf8 } from './bytes.ts'
import {
  decodePass,
  encodePassHeader,
  type PassClaims,
  parsePassClaims,
  parsePassHeader,
  passProofData,
  passType,
} from './pass.ts'
import { isSamePass, parsePassTerms } from './passTerms.ts'

const payer = `0x${'a'.repeat(40)}` as const
const bearer: PassClaims = {
  iss: 'https://gateway.example',
  jti: `pay_${'0'.repeat(32)}`,
  aud: 'https://api.example',
  iat: 1_800_000_000,
  exp: 1_800_003_600,
  providerId: 'prov_1',
  endpointId: 'ep_1',
  boundTo: 'bearer',
}
const bound: PassClaims = { ...bearer, boundTo: 'payer', payer, requests: 100 }

describe('claims', () => {
  test.each([bearer, bound])('are read unchanged, except that unknown claims are dropped', (claims) => {
    expect(parsePassClaims({ ...claims, another: true })).toEqual(claims)
  })

  test.each<[string, object]>([
    ['boundTo', { ...bearer, boundTo: 'anyone' }],
    ['payer', { ...bearer, payer }],
    ['payer', { ...bound, payer: undefined }],
    ['payer', { ...bound, payer: 'me' }],
    ['exp', { ...bearer, exp: '1800003600' }],
    ['exp', { ...bearer, exp: undefined }],
    ['exp', { ...bearer, exp: Number.MAX_SAFE_INTEGER }],
    ['jti', { ...bearer, jti: '../../x' }],
    ['requests', { ...bearer, requests: 0 }],
    ['requests', { ...bearer, requests: 1.5 }],
    ['endpointId', { ...bearer, endpointId: '' }],
  ])('are rejected if %s is invalid', (field, claims) => {
    expect(() => parsePassClaims(claims)).toThrow(
      expect.objectContaining({ code: 'pass_invalid', details: { field } }),
    )
  })

  test('are decoded without the signature only if the header has the type of a pass', () => {
    const write = (typ: string) =>
      [{ alg: 'ES256', typ }, bearer]
        .map((part) => encodeBase64url(encodeUtf8(JSON.stringify(part))))
        .join('.')
    expect(decodePass(`${write(passType)}.x`)).toEqual(bearer)
    for (const text of [`${write('JWT')}.x`, '', '..', 'a.b.c', write(passType).slice(0, 60)])
      expect(decodePass(text)).toBeUndefined()
  })
})

describe('terms', () => {
  test('are read, and equal the terms of another challenge only if every field is equal', () => {
    const terms = { seconds: 3_600, requests: 100, boundTo: 'payer' } as const
    expect(parsePassTerms(terms)).toEqual(terms)
    expect(isSamePass(terms, { ...terms })).toBe(true)
    expect(isSamePass(undefined, undefined)).toBe(true)
    for (const other of [
      undefined,
      { ...terms, seconds: 60 },
      { ...terms, requests: undefined },
      { ...terms, boundTo: 'bearer' as const },
    ])
      expect(isSamePass(terms, other)).toBe(false)
  })

  test.each([
    { seconds: 59 },
    { seconds: 31_622_401 },
    { requests: 0 },
    { requests: 1_000_001 },
    { boundTo: 'x' },
  ])('are rejected if they contain %o', (change) => {
    expect(() => parsePassTerms({ seconds: 3_600, boundTo: 'bearer', ...change })).toThrow('must be')
  })
})

describe('header', () => {
  const jws = `${'a'.repeat(20)}.${'b'.repeat(300)}.${'c'.repeat(86)}`
  const proof = { expiresAt: 1_800_000_600, signature: `0x${'1'.repeat(130)}` as const }

  test('contains a pass, with or without the payer’s proof', () => {
    expect(parsePassHeader(encodePassHeader(jws))).toEqual({ jws })
    expect(parsePassHeader(encodePassHeader(jws, proof))).toEqual({ jws, proof })
  })

  test.each([
    '',
    jws.slice(0, -1),
    `${jws}; proof=`,
    `${jws}; proof=1.0x00`,
    `${jws}, ${jws}`,
    'x'.repeat(9_000),
  ])('is rejected if it is malformed, case %#', (header) => {
    expect(() => parsePassHeader(header)).toThrow(expect.objectContaining({ code: 'pass_invalid' }))
  })

  test('contains a valid signature even if the wallet serializes the typed data to JSON before it signs', async () => {
    const account = privateKeyToAccount(generatePrivateKey())
    const data = passProofData({ origin: 'https://api.example', pass: bearer.jti, expiresAt: 1_800_000_600 })
    const written = JSON.parse(JSON.stringify(data)) as typeof data
    expect(Object.keys(written.types)).toContain('EIP712Domain')
    const signature = await account.signTypedData(written as never)
    expect(await recoverTypedDataAddress({ ...data, signature } as never)).toBe(account.address)
  })
})
