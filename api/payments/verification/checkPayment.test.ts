import { boundNonce, feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { describe, expect, test } from 'vitest'
import { boundNonces, checkPayment, type PaymentTerms } from './checkPayment.ts'

const address = (digit: string) => `0x${digit.repeat(40)}` as const
const now = 1_800_000_000
const [issuer, requestId] = ['https://gateway.example', `req_${'1'.repeat(32)}`]
const nonce = boundNonce(issuer, requestId)

const terms = {
  requestId,
  payTo: address('2'),
  feePayTo: address('3'),
  amount: 9_500n,
  feeAmount: 500n,
} as PaymentTerms
const provider: SignedAuthorization = {
  from: address('1'),
  to: terms.payTo,
  value: 9_500n,
  validAfter: BigInt(now),
  validBefore: BigInt(now + 270),
  nonce,
  signature: '0x',
}
const fee: SignedAuthorization = { ...provider, to: terms.feePayTo, value: 500n, nonce: feeNonce(nonce) }
const splitter = address('4')
const both: SignedAuthorization = { ...provider, to: splitter, value: 10_000n }

const checkPair = (change: Partial<SignedAuthorization>, ofFee: Partial<SignedAuthorization> = {}) =>
  checkPayment(
    [
      { ...provider, ...change },
      { ...fee, ...ofFee },
    ],
    terms,
    null,
    now,
  )
const checkOne = (change: Partial<SignedAuthorization>) =>
  checkPayment([{ ...both, ...change }], terms, splitter, now)

test('default: accepts two authorizations with at least their amounts, and a single authorization with exactly the price', () => {
  expect(() => checkPair({})).not.toThrow()
  expect(() => checkPair({ value: 9_501n }, { value: 501n })).not.toThrow()
  expect(() => checkOne({})).not.toThrow()
})

const windows: [string, Partial<SignedAuthorization>, string][] = [
  ['an authorization that is not valid yet', { validAfter: BigInt(now + 1) }, 'authorization_not_yet_valid'],
  ['an expired authorization', { validBefore: BigInt(now) }, 'authorization_expired'],
  [
    'an authorization that expires too soon',
    { validBefore: BigInt(now + 269) },
    'authorization_expires_too_soon',
  ],
]

describe('two authorizations', () => {
  test.each<[string, Partial<SignedAuthorization>, string]>([
    ['another recipient', { to: address('9') }, 'payees_mismatch'],
    ['one base unit too little', { value: 9_499n }, 'amount_too_low'],
    ...windows,
  ])('error: rejects the provider’s authorization with %s', (_, change, code) => {
    expect(() => checkPair(change)).toThrow(expect.objectContaining({ code }))
  })

  test.each<[string, Partial<SignedAuthorization>, string]>([
    ['another recipient', { to: address('9') }, 'payees_mismatch'],
    ['another payer', { from: address('9') }, 'payer_mismatch'],
    ['the same nonce', { nonce }, 'nonce_reused'],
    ['one base unit too little', { value: 499n }, 'amount_too_low'],
    ...windows,
  ])('error: rejects the platform’s authorization with %s', (_, change, code) => {
    expect(() => checkPair({}, change)).toThrow(expect.objectContaining({ code }))
  })
})

test.each<[string, Partial<SignedAuthorization>, string]>([
  ['the provider as recipient', { to: terms.payTo }, 'payees_mismatch'],
  ['one base unit too little', { value: 9_999n }, 'amount_mismatch'],
  ['one base unit too much', { value: 10_001n }, 'amount_mismatch'],
  ...windows,
])('error: rejects a single authorization with %s', (_, change, code) => {
  expect(() => checkOne(change)).toThrow(expect.objectContaining({ code }))
})

test('default: treats only nonces that are derived from the challenge as bound to it', () => {
  const other = `0x${'5'.repeat(64)}` as const
  expect(boundNonces([both], issuer, requestId)).toEqual([true])
  expect(boundNonces([{ ...both, nonce: other }], issuer, requestId)).toEqual([false])
  expect(boundNonces([provider, fee], issuer, requestId)).toEqual([true, true])
  expect(boundNonces([provider, { ...fee, nonce: other }], issuer, requestId)).toEqual([true, false])
  const ofOther = { ...fee, nonce: feeNonce(other) }
  expect(boundNonces([{ ...provider, nonce: other }, ofOther], issuer, requestId)).toEqual([false, false])
})
