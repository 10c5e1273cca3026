import type { Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { describe, expect, test } from 'vitest'
import cases from '../../../test/internet/cases/signatures.json' with { type: 'json' }
import { transferWithAuthorizationTypes } from './eip3009.ts'
import { parsePayload, parseSignature, toDecimal } from './payload.ts'
import { faultOfForm, normalizeSignature } from './signature.ts'

const canonical = cases.signatures[0]?.value as Hex
const right = cases.signatures.filter((one) => one.right)
const wrong = cases.signatures.filter((one) => !one.right)

test('default: the first form in the fixture is the test key’s signature', async () => {
  const key = '0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80'
  const signed = await privateKeyToAccount(key).signTypedData({
    domain: cases.domain as never,
    types: transferWithAuthorizationTypes,
    primaryType: 'TransferWithAuthorization',
    message: cases.message as never,
  })
  expect(signed).toBe(canonical)
})

describe('parseSignature', () => {
  test.each(right)('args: reads $form as 65 bytes with v 27 or 28', ({ value }) => {
    expect(parseSignature(value)).toBe(canonical)
    const { from, to, value: amount, validAfter, validBefore, nonce } = cases.message
    const payload = [from, to, amount, validAfter, validBefore, nonce, value].join()
    expect(parsePayload(payload).signature).toBe(canonical)
  })

  test('args: reads EIP-2098 with either parity', () => {
    const other = `${canonical.slice(0, -2)}1c` as Hex
    const short = `${canonical.slice(0, 66)}${(Number.parseInt(canonical.charAt(66), 16) + 8).toString(16)}${canonical.slice(67, -2)}`
    expect([parseSignature(short), parseSignature(`${other.slice(0, -2)}01`)]).toEqual([other, other])
  })

  test.each([
    ['of a contract wallet, with any last byte', `0x${'ab'.repeat(200)}00`],
    ['that a contract wallet approved in advance', `0x${'0'.repeat(24)}${'a'.repeat(40)}${'0'.repeat(64)}01`],
    ['that no private key can produce', `0x${'ff'.repeat(64)}00`],
  ])('behavior: leaves a signature %s unchanged', (_, signature) => {
    expect(parseSignature(signature)).toBe(signature)
  })

  test.each([
    ['without 0x', canonical.slice(2), /0x and hex digits: 65 bytes \(r, s, v\), 64 bytes \(EIP-2098\)/],
    ['of 63 bytes', `0x${'ab'.repeat(63)}`, /65 bytes/],
    ['of 1,025 bytes', `0x${'ab'.repeat(1_025)}`, /up to 1024/],
    ['of 64 zero bytes', `0x${'00'.repeat(64)}`, /EIP-2098/],
  ])('error: rejects a signature %s and names the expected form', (_, signature, message) => {
    expect(() => parseSignature(signature)).toThrow(message)
  })
})

describe('faultOfForm', () => {
  test.each([
    ['high s', /low s/],
    ['v 29', /v is 29, expected 27 or 28/],
  ])('error: describes a signature with %s', (form, message) => {
    const { value } = wrong.find((one) => one.form === form) as { value: Hex }
    expect(faultOfForm(normalizeSignature(value))).toMatch(message)
  })

  test.each([
    ['r', `0x${'00'.repeat(32)}${'11'.repeat(32)}1b` as Hex],
    ['s', `0x${'11'.repeat(32)}${'00'.repeat(32)}1b` as Hex],
  ])('error: describes an %s of zero', (name, signature) => {
    expect(faultOfForm(signature)).toMatch(new RegExp(`^its ${name} is not a number`))
  })

  test('behavior: returns undefined for a valid signature, and for a signature that is not 65 bytes long', () => {
    expect([faultOfForm(canonical), faultOfForm(`0x${'ab'.repeat(66)}`)]).toEqual([undefined, undefined])
  })
})

test.each([
  [5, '5'],
  [0, '0'],
  ['0x0f', '15'],
  ['007', '007'],
  [1.5, undefined],
  [2 ** 53, undefined],
  [null, undefined],
  [{}, undefined],
])('args: toDecimal reads %j as %j', (value, expected) => {
  expect(toDecimal(value)).toBe(expected)
})
