import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/receipts.json' with { type: 'json' }
import { decodeReceipt, parseReceiptClaims, zeroHash } from './receipt.ts'

const claims = vectors.receipts[0]?.claims as Record<string, unknown>

test('default: parseReceiptClaims returns consistent claims unchanged', () => {
  expect(parseReceiptClaims(claims)).toEqual(claims)
})

test('behavior: drops unknown claims, but keeps the optional block hash', () => {
  const blockHash = `0x${'7'.repeat(64)}`
  expect(parseReceiptClaims({ ...claims, blockHash, further: 1 })).toEqual({ ...claims, blockHash })
})

const [provider, platform] = claims.authorizations as [object, object]
const split = { provider: `0x${'1'.repeat(40)}`, platform: `0x${'2'.repeat(40)}` }
const whole = { ...provider, value: claims.totalUsdc }

const refund = {
  number: 1,
  from: `0x${'1'.repeat(40)}`,
  value: '50000',
  nonce: `0x${'2'.repeat(64)}`,
  transactionHash: zeroHash,
}

test('behavior: accepts refunds with different numbers that add up to at most the paid amount', () => {
  const refunds = [
    { ...refund, value: '30000' },
    { ...refund, number: 3, value: '20000' },
  ]
  expect(parseReceiptClaims({ ...claims, refunds })).toEqual({ ...claims, refunds })
})

test('behavior: accepts a single authorization that pays the provider’s part and the fee to a splitter', () => {
  const one = { ...claims, authorizations: [whole], split }
  expect(parseReceiptClaims(one)).toEqual(one)
})

test('behavior: requires no splitter if there is a single authorization and no fee', () => {
  const one = { ...claims, providerUsdc: claims.totalUsdc, platformUsdc: '0', authorizations: [whole] }
  expect(parseReceiptClaims(one)).toEqual(one)
  expect(() => parseReceiptClaims({ ...one, split })).toThrow(
    expect.objectContaining({ details: { field: 'split' } }),
  )
})

const tab = {
  id: `tab_${'0'.repeat(32)}`,
  sequence: 2,
  split: `0x${'b'.repeat(64)}`,
  rewardShare: 1_000,
  lineTotal: '60000',
}
const onTab = { ...claims, authorizations: [whole], split, tab }

test('behavior: accepts a request on a tab, even if its fee is rounded down to 0', () => {
  expect(parseReceiptClaims({ ...onTab, tab: { ...tab, further: 1 } })).toEqual(onTab)
  const whole = { ...provider, value: '7' }
  const amounts = { totalUsdc: '7', providerUsdc: '7', platformUsdc: '0', authorizations: [whole] }
  expect(parseReceiptClaims({ ...onTab, ...amounts })).toEqual({ ...onTab, ...amounts })
})

test.each([
  ['split', { split: undefined }],
  ['tab', { tab: 'on' }],
  ['tab.id', { tab: { ...tab, id: `tab_${'A'.repeat(32)}` } }],
  ['tab.sequence', { tab: { ...tab, sequence: 0 } }],
  ['tab.sequence', { tab: { ...tab, sequence: '2' } }],
  ['tab.split', { tab: { ...tab, split: '0x' } }],
  ['tab.rewardShare', { tab: { ...tab, rewardShare: undefined } }],
  ['tab.rewardShare', { tab: { ...tab, rewardShare: 10_001 } }],
  ['tab.lineTotal', { tab: { ...tab, lineTotal: 60_000 } }],
  ['tab.lineTotal', { tab: { ...tab, lineTotal: '1'.repeat(21) } }],
  ['tab', { authorizations: claims.authorizations, split: undefined }],
])('error: rejects the receipt of a request on a tab if %s is invalid', (field, change) => {
  expect(() => parseReceiptClaims({ ...onTab, ...change })).toThrow(
    expect.objectContaining({ code: 'invalid_receipt', details: { field } }),
  )
})

test.each([
  ['iat', { iat: '1800000000' }],
  ['iat', { iat: -1 }],
  ['status', { status: 'done' }],
  ['totalUsdc', { totalUsdc: '50001' }],
  ['totalUsdc', { totalUsdc: '0.05' }],
  ['totalUsdc', { totalUsdc: 50_000 }],
  ['effectiveRate', { effectiveRate: '5%' }],
  ['timestamp', { timestamp: '2027-01-15' }],
  ['transactionHash', { transactionHash: '0x0' }],
  ['asset', { asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913' }],
  ['payer', { payer: undefined }],
  ['validBefore', { validBefore: 1_800_093_600 }],
  ['blockHash', { blockHash: '' }],
  ['authorizations[0].value', { authorizations: [provider] }],
  ['authorizations', { authorizations: [provider, platform, platform] }],
  ['split', { authorizations: [whole] }],
  ['split', { split }],
  ['split.platform', { authorizations: [whole], split: { ...split, platform: 'x' } }],
  ['authorizations', { authorizations: undefined }],
  ['authorizations[0].value', { authorizations: [{ ...provider, value: '47501' }, platform] }],
  ['authorizations[1].value', { authorizations: [provider, { ...platform, value: '2501' }] }],
  ['authorizations[1].nonce', { authorizations: [provider, { ...platform, nonce: '0x1' }] }],
  ['paymentId', { paymentId: '' }],
  ['refunds', { refunds: {} }],
  ['refunds', { refunds: [refund, { ...refund, number: 2, value: '1' }] }],
  [
    'refunds',
    {
      refunds: [
        { ...refund, value: '1' },
        { ...refund, value: '1' },
      ],
    },
  ],
  ['refunds[0].number', { refunds: [{ ...refund, number: 4 }] }],
  ['refunds[0].nonce', { refunds: [{ ...refund, nonce: '0x' }] }],
])('error: rejects an invalid %s', (field, change) => {
  expect(() => parseReceiptClaims({ ...claims, ...change })).toThrow(
    expect.objectContaining({ code: 'invalid_receipt', details: { field } }),
  )
})

test.each([undefined, null, 'x', []])('error: rejects %j', (payload) => {
  expect(() => parseReceiptClaims(payload)).toThrow(expect.objectContaining({ code: 'invalid_receipt' }))
})

describe('decodeReceipt', () => {
  test('default: returns the claims', () => {
    expect(decodeReceipt(vectors.receipts[0]?.jws ?? '')).toEqual(claims)
  })

  test.each(['', 'a', 'a.b.c', `a.${Buffer.from('{}').toString('base64url')}.c`, 'a.!!.c'])(
    'behavior: %j is not a receipt',
    (jws) => {
      expect(decodeReceipt(jws)).toBeUndefined()
    },
  )
})

test('behavior: zeroHash is 32 zero bytes', () => {
  expect(zeroHash).toMatch(/^0x0{64}$/)
})
