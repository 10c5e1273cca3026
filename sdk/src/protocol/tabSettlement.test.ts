import fc from 'fast-check'
import { type Address, encodeFunctionData, type Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import vectors from '../../../test/vectors/tabBatches.json' with { type: 'json' }
import { tabSettlementAbi } from './abi/tabSettlement.ts'
import { decodeOutcomes } from './batchSettlement.ts'
import {
  decodeSettleTabs,
  decodeTabsSettled,
  encodeSettleTabs,
  type SignedTab,
  type TabBatch,
} from './tabSettlement.ts'

type Vector = (typeof vectors.batches)[number]

const batchOf = ({ batch }: Vector): Required<TabBatch> => ({
  ...batch,
  token: batch.token.toLowerCase() as Address,
  feeRecipient: batch.feeRecipient as Address,
  batchId: batch.batchId as Hex,
  callGasLimit: BigInt(batch.callGasLimit),
  tabGas: BigInt(batch.tabGas),
  lineGas: BigInt(batch.lineGas),
  payoutGas: BigInt(batch.payoutGas),
})

const tabsOf = ({ tabs }: Vector): SignedTab[] =>
  tabs.map(({ payer, nonce, sequence, expiry, lines, signature }) => ({
    payer: payer as Address,
    nonce: nonce as Hex,
    sequence,
    expiry,
    signature: signature as Hex,
    lines: lines.map(({ split, amount }) => ({ split: BigInt(split), amount: BigInt(amount) })),
  }))

const vectorOf = (index: number): Vector => {
  const vector = vectors.batches[index]
  if (!vector) throw new Error(`There is no vector ${index}`)
  return vector
}

test.each(vectors.batches)('default: encodes and decodes the batch of the test vector "$name"', (vector) => {
  const encoded = encodeSettleTabs(batchOf(vector), tabsOf(vector))
  expect(encoded.calldata).toBe(vector.calldata)
  expect(encoded.splits).toEqual(vector.splits.map(BigInt))
  expect(encoded.signatures).toEqual(vector.signatures)
  expect(decodeSettleTabs(encoded.calldata)).toEqual({ batch: batchOf(vector), tabs: tabsOf(vector) })
  const { feeRecipient: platform, rewardShare } = batchOf(vector)
  const lines = vector.settledLines as Hex
  expect(decodeTabsSettled({ platform, rewardShare, splits: encoded.splits, lines })).toEqual(
    tabsOf(vector).map(({ sequence, lines }) => ({ platform, rewardShare, sequence, lines })),
  )
})

test('default: uses the contract’s minimum gas if a batch states no gas reserves', () => {
  const { tabGas: _, lineGas: __, payoutGas: ___, ...batch } = batchOf(vectorOf(0))
  const { calldata } = encodeSettleTabs(batch, tabsOf(vectorOf(0)))
  expect(decodeSettleTabs(calldata).batch).toEqual({ ...batch, tabGas: 0n, lineGas: 0n, payoutGas: 0n })
})

test('behavior: encoding stores each split once and a provider’s splits side by side, and decoding restores the tabs', () => {
  const hex = (length: number) =>
    fc
      .uint8Array({ minLength: length, maxLength: length })
      .map((bytes): Hex => `0x${Buffer.from(bytes).toString('hex')}`)
  const split = fc
    .tuple(fc.bigInt(0n, 5n), fc.bigInt(0n, 3n))
    .map(([provider, share]) => (provider << 96n) | (share << 48n) | 1n)
  const tab = fc.record({
    payer: hex(20),
    nonce: hex(32),
    sequence: fc.integer({ min: 0, max: 2 ** 40 - 1 }),
    expiry: fc.integer({ min: 0, max: 2 ** 40 - 1 }),
    lines: fc.array(fc.record({ split, amount: fc.bigInt(0n, 2n ** 48n - 1n) })),
    signature: fc.oneof(hex(65), hex(130)),
  })
  fc.assert(
    fc.property(fc.array(tab, { maxLength: 6 }), (tabs) => {
      const { calldata, splits } = encodeSettleTabs(batchOf(vectorOf(0)), tabs)
      expect(decodeSettleTabs(calldata).tabs).toEqual(tabs)
      expect(new Set(splits).size).toBe(splits.length)
      const providers = splits.map((one) => one >> 96n)
      expect(providers).toEqual([...providers].sort((a, b) => Number(a - b)))
    }),
  )
})

test('behavior: supports more splits than one byte can count', () => {
  const lines = Array.from({ length: 300 }, (_, index) => ({ split: BigInt(index) << 96n, amount: 1n }))
  const [tab] = tabsOf(vectorOf(0)) as [SignedTab]
  const { calldata } = encodeSettleTabs(batchOf(vectorOf(0)), [{ ...tab, lines }])
  expect(decodeSettleTabs(calldata).tabs).toEqual([{ ...tab, lines }])
})

describe('input that cannot be encoded or decoded', () => {
  const [tab] = tabsOf(vectorOf(0)) as [SignedTab]
  const split = 7n
  const lineOf = (index: number) => ({ split: BigInt(index), amount: 0n })

  test.each([
    ['an amount below 0', [{ ...tab, lines: [{ split, amount: -1n }] }], /2\^48 - 1, got -1/],
    ['an amount of 49 bits', [{ ...tab, lines: [{ split, amount: 2n ** 48n }] }], /2\^48 - 1/],
    ['too many lines', [{ ...tab, lines: Array(65_536).fill(lineOf(1)) }], /65535 lines, got 65536/],
    [
      'too many splits',
      [0, 40_000].map((from) => ({
        ...tab,
        lines: Array.from({ length: 40_000 }, (_, i) => lineOf(from + i)),
      })),
      /at most 65536 splits/,
    ],
  ])('error: rejects %s', (_, tabs, message) => {
    expect(() => encodeSettleTabs(batchOf(vectorOf(0)), tabs)).toThrow(message)
  })

  const { splits, tabs, lines } = encodeSettleTabs(batchOf(vectorOf(0)), [tab])
  const call = (changes: { splits?: bigint[]; lines?: Hex; vs?: Hex }) =>
    encodeFunctionData({
      abi: tabSettlementAbi,
      functionName: 'settle',
      args: [
        batchOf(vectorOf(0)),
        changes.splits ?? splits,
        tabs.map((packed) => ({ ...packed, ...(changes.vs && { vs: changes.vs }) })),
        changes.lines ?? lines,
        [],
      ],
    })
  test.each([
    [
      'another function',
      encodeFunctionData({ abi: tabSettlementAbi, functionName: 'MIN_CALL_GAS' }),
      /MIN_CALL_GAS/,
    ],
    ['the index of a missing split', call({ splits: [] }), /names split 0, but there are only 0/],
    ['a byte too few', call({ lines: lines.slice(0, -2) as Hex }), /more lines than the data/],
    ['a byte too many', call({ lines: `${lines}00` }), /fewer lines than the data/],
    ['the index of a missing signature', call({ vs: `0x${'0'.repeat(64)}` }), /has no signature/],
  ])('error: rejects %s in the calldata', (_, calldata, message) => {
    expect(() => decodeSettleTabs(calldata)).toThrow(message)
  })

  test.each([
    ['a header that is cut off', '0x0001', /more lines/],
    ['one line too few', '0x00010000000002', /more lines/],
    ['the index of a missing split', '0x000100000000020001000000009c40', /split 1, but there are only 1/],
  ])('error: rejects %s in the event', (_, hex, message) => {
    const terms = { platform: `0x${'b'.repeat(40)}`, rewardShare: 0 } as const
    expect(() => decodeTabsSettled({ ...terms, splits: [split], lines: hex as Hex })).toThrow(message)
  })
})

test('behavior: decodes the outcomes of tabs, including an expired one', () => {
  expect(decodeOutcomes('0x105030').map(({ provider }) => provider)).toEqual(['settled', 'expired', 'failed'])
})
