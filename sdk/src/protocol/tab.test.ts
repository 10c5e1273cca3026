import fc from 'fast-check'
import { type Hex, hashTypedData, recoverAddress } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/tabs.json' with { type: 'json' }
import {
  authorizationDigest,
  domainSeparator,
  eip712Domain,
  receiveWithAuthorizationTypes,
} from './eip3009.ts'
import { networks } from './networks.ts'
import { encodeSplit } from './splitter.ts'
import {
  encodeTabPayload,
  maxTabLines,
  parseTabPayload,
  platformPart,
  providerOfSplit,
  type TabState,
  type TabTerms,
  tabAuthorization,
  tabMessage,
  tabNonce,
  tabSplit,
} from './tab.ts'

const domain = eip712Domain(networks.base)
const separator = domainSeparator(domain)

const states = vectors.states.map(({ terms, state, lines, ...expected }) => ({
  ...expected,
  terms: terms as TabTerms,
  state: {
    ...(state as Omit<TabState, 'lines'>),
    lines: lines.map(({ split, amount }) => ({ split: BigInt(split), amount: BigInt(amount) })),
  },
}))
const [one] = states
if (!one) throw new Error('no vectors')

describe('tabAuthorization', () => {
  test.each(states)('default: equals the test vector "$name"', async ({ terms, state, ...expected }) => {
    const authorization = tabAuthorization(terms, state)
    expect(authorization).toEqual({
      primaryType: 'ReceiveWithAuthorization',
      from: state.payer,
      to: terms.contract,
      value: BigInt(expected.value),
      validAfter: 0n,
      validBefore: BigInt(expected.validBefore),
      nonce: expected.nonce,
    })
    expect(tabNonce(terms.issuer, state.tabId)).toBe(expected.nonce)
    const hash = authorizationDigest(separator, authorization)
    expect(hash).toBe(expected.digest)
    const signer = await recoverAddress({ hash, signature: expected.signature as Hex })
    expect(signer.toLowerCase()).toBe(state.payer)
  })

  const hex = (size: number) =>
    fc
      .uint8Array({ minLength: size, maxLength: size })
      .map((bytes) => `0x${Buffer.from(bytes).toString('hex')}` as Hex)
  const anyState = fc.record({
    tabId: hex(16).map((digits) => `tab_${digits.slice(2)}`),
    payer: hex(20),
    sequence: fc.integer({ min: 0, max: 2 ** 40 - 1 }),
    expiry: fc.integer({ min: 0, max: 2 ** 40 - 1 }),
    lines: fc.array(fc.record({ split: hex(32).map(BigInt), amount: fc.bigInt(0n, 2n ** 48n - 1n) }), {
      minLength: 1,
      maxLength: maxTabLines,
    }),
  })

  test('behavior: has the same digest as viem’s hashTypedData, also after a transfer was hashed', () => {
    fc.assert(
      fc.property(anyState, (state) => {
        const { primaryType, ...message } = tabAuthorization(one.terms, state)
        authorizationDigest(separator, { ...message, value: 2n ** 64n - 1n, validBefore: 2n ** 256n - 1n })
        const typed = { domain, types: receiveWithAuthorizationTypes, primaryType, message }
        expect(authorizationDigest(separator, { ...message, primaryType })).toBe(hashTypedData(typed))
      }),
    )
  })

  test('behavior: returns a different authorization if any field of the terms or the state differs', () => {
    const { terms, state } = one
    const [line] = state.lines
    if (!line) throw new Error('no line')
    const digestOf = (changed: Partial<TabTerms>, changedState: Partial<TabState> = {}) =>
      authorizationDigest(
        separator,
        tabAuthorization({ ...terms, ...changed }, { ...state, ...changedState }),
      )
    const digests = [
      digestOf({}),
      digestOf({ issuer: 'https://gateway.example/' }),
      digestOf({ contract: terms.platform }),
      digestOf({ platform: terms.contract }),
      digestOf({ rewardShare: 999 }),
      digestOf({ chainId: 1 }),
      digestOf({}, { tabId: `tab_${'0'.repeat(32)}` }),
      digestOf({}, { payer: terms.platform }),
      digestOf({}, { sequence: state.sequence + 1 }),
      digestOf({}, { expiry: state.expiry + 1 }),
      digestOf({}, { lines: [{ ...line, amount: line.amount + 1n }] }),
      digestOf({}, { lines: [{ ...line, split: line.split + 1n }] }),
      digestOf({}, { lines: [line, { split: line.split, amount: 0n }] }),
    ]
    expect(new Set(digests).size).toBe(digests.length)
  })

  test('behavior: binds the hash of the lines to the tab, its payer and its chain', () => {
    const { terms, state } = one
    const { issuer, tabId, ...rest } = { ...terms, ...state }
    const own = { ...rest, nonce: tabNonce(issuer, tabId) }
    const signedFor = (change: Partial<typeof own>) =>
      tabMessage({ ...own, ...change }, { ...own, ...change })
    expect(signedFor({})).toEqual(tabAuthorization(terms, state))
    const changes = [{}, { nonce: tabNonce(issuer, `${tabId}0`) }, { payer: terms.platform }, { chainId: 1 }]
    const hashes = changes.map((change) => signedFor(change).validBefore)
    expect(new Set(hashes).size).toBe(changes.length)
  })

  test.each([
    ['a tab without lines', { lines: [] }],
    ['a tab of 129 lines', { lines: Array(129).fill({ split: 1n, amount: 1n }) }],
    ['an amount of 2^48', { lines: [{ split: 1n, amount: 2n ** 48n }] }],
    ['an amount below 0', { lines: [{ split: 1n, amount: -1n }] }],
    ['a sequence of 2^40', { sequence: 2 ** 40 }],
    ['a fractional sequence', { sequence: 1.5 }],
    ['an expiry of 2^40', { expiry: 2 ** 40 }],
    ['an expiry below 0', { expiry: -1 }],
  ] as [string, Partial<TabState>][])('error: rejects %s', (_, change) => {
    expect(() => tabAuthorization(one.terms, { ...one.state, ...change })).toThrow(RangeError)
  })

  test.each([-1, 0.5, 2 ** 53])('error: rejects the chain id %s', (chainId) => {
    expect(() => tabAuthorization({ ...one.terms, chainId }, one.state)).toThrow(RangeError)
  })

  test.each([10_001, -1, 0.5])('error: rejects a reward of %s', (rewardShare) => {
    expect(() => tabAuthorization({ ...one.terms, rewardShare }, one.state)).toThrow(RangeError)
  })
})

describe('parseTabPayload', () => {
  test.each(vectors.payloads.valid)('default: reads and writes a payload: $name', ({ payload, parsed }) => {
    const payment = parseTabPayload(payload)
    const { tab: tabId, splits: _, amounts: __, ...rest } = payload
    expect(payment).toEqual({
      ...rest,
      tabId,
      splits: parsed.splits.map(BigInt),
      amounts: parsed.amounts.map(BigInt),
    })
    expect(encodeTabPayload(payment)).toEqual(payload)
  })

  test.each(vectors.payloads.invalid)('error: rejects a payload: $name', ({ payload, field }) => {
    expect(() => parseTabPayload(payload)).toThrow(
      expect.objectContaining({ code: 'invalid_payload', details: { field } }),
    )
  })

  test.each([undefined, null, 'x', []])('error: rejects %j', (json) => {
    expect(() => parseTabPayload(json)).toThrow(expect.objectContaining({ details: { field: 'payload' } }))
  })

  test.each([2n ** 48n, -1n])('error: rejects an amount of %s', (amount) => {
    const payment = parseTabPayload(vectors.payloads.valid[0]?.payload)
    expect(() => encodeTabPayload({ ...payment, amounts: [amount] })).toThrow(RangeError)
  })
})

const wallets = { provider: `0x${'a'.repeat(40)}`, platform: `0x${'b'.repeat(40)}` } as const

test.each([
  [1n, 9n],
  [9_999n, 9n],
  [10_000n, 19n],
  [999_999n, 19n],
])('behavior: tabSplit divides a price of %s in the ratio %s to 1', (price, providerShare) => {
  expect(tabSplit(wallets, price)).toEqual({ ...wallets, providerShare, platformShare: 1n })
})

test('args: tabSplit returns a split for a flat fee at any price, and undefined if the fee has a fixed part', () => {
  expect(tabSplit(wallets, 5_000_000n, 'flat')?.providerShare).toBe(49n)
  expect(tabSplit(wallets, 1_000_000n)).toBeUndefined()
})

test.each([
  [0n, 0n],
  [9n, 0n],
  [10n, 1n],
  [19n, 1n],
  [2n ** 48n - 1n, (2n ** 48n - 1n) / 10n],
])('behavior: from a line of %s, platformPart gives the platform %s', (amount, part) => {
  const split = encodeSplit({ ...wallets, providerShare: 9n, platformShare: 1n })
  expect(platformPart(split, amount)).toBe(part)
  expect(providerOfSplit(split)).toBe(wallets.provider)
})

test('behavior: platformPart gives the platform nothing if the split has no shares', () => {
  const provider = `0x${'0'.repeat(39)}1` as const
  const split = encodeSplit({ provider, providerShare: 0n, platformShare: 0n })
  expect([platformPart(split, 100n), providerOfSplit(split)]).toEqual([0n, provider])
})
