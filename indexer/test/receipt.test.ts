import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { tabSettlementAbi } from '@tollkeeper/sdk/protocol/abi/tabSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import {
  encodeAbiParameters,
  encodeEventTopics,
  type Hex,
  numberToHex,
  pad,
  zeroAddress,
  zeroHash,
} from 'viem'
import { describe, expect, test } from 'vitest'
import { countPayments, type ReceiptLog, readReceipt, shareOf } from '../src/receipt.ts'

const token: Hex = '0x00000000000000000000000000000000000000aa'
const settlement: Hex = '0x00000000000000000000000000000000000000bb'
const tabSettlement: Hex = '0x00000000000000000000000000000000000000bc'
const buyer: Hex = '0x00000000000000000000000000000000000000b1'
const other: Hex = '0x00000000000000000000000000000000000000b2'
const payee: Hex = '0x00000000000000000000000000000000000000c1'
const stranger: Hex = '0x00000000000000000000000000000000000000c2'
const platform: Hex = '0x00000000000000000000000000000000000000fe'

type Unplaced = Omit<ReceiptLog, 'logIndex'>

/** Numbers logs consecutively, as in a receipt whose transaction isn't the first in its block. */
const place = (logs: readonly Unplaced[]): ReceiptLog[] =>
  logs.map((log, i) => ({ ...log, logIndex: numberToHex(7 + i) }))

const nonce = (n: number): Hex => pad(numberToHex(n))

const event = (
  eventName: 'AuthorizationUsed' | 'AuthorizationCanceled',
  n: number,
  address: Hex = token,
): Unplaced => ({
  address,
  topics: encodeEventTopics({
    abi: usdcAbi,
    eventName,
    args: { authorizer: buyer, nonce: nonce(n) },
  }) as Hex[],
  data: '0x',
})

const used = (n: number, address?: Hex) => event('AuthorizationUsed', n, address)
const cancelled = (n: number) => event('AuthorizationCanceled', n)

const transfer = (value: bigint, from: Hex = buyer, address: Hex = token, to: Hex = payee): Unplaced => ({
  address,
  topics: encodeEventTopics({ abi: usdcAbi, eventName: 'Transfer', args: { from, to } }) as Hex[],
  data: pad(numberToHex(value)),
})

const settled = (outcomes: Hex, ofToken: Hex = token): Unplaced => ({
  address: settlement,
  topics: encodeEventTopics({
    abi: batchSettlementAbi,
    eventName: 'BatchSettled',
    args: { batchId: zeroHash, keeper: zeroAddress, token: ofToken },
  }) as Hex[],
  data: encodeAbiParameters(
    [{ type: 'uint8' }, { type: 'uint256' }, { type: 'uint256' }, { type: 'uint256' }, { type: 'bytes' }],
    [0, 0n, 0n, 0n, outcomes],
  ),
})

const splits = [payee, other].map((provider) => BigInt(`${provider}000000000013000000000001`))
/** A tab as TabsSettled encodes it: its sequence and, for each line, the index of its split and its amount. */
const tab = (sequence: number, ...lines: [number, number][]) =>
  [lines.length, ...[sequence]].map((n, i) => n.toString(16).padStart(i === 0 ? 4 : 10, '0')).join('') +
  lines
    .map(([split, amount]) => split.toString(16).padStart(4, '0') + amount.toString(16).padStart(12, '0'))
    .join('')

const tabsSettled = (...tabs: string[]): Unplaced => tabsSettledUnder(platform, 1_000, ...tabs)

const tabsSettledUnder = (signedPlatform: Hex, rewardShare: number, ...tabs: string[]): Unplaced => ({
  address: tabSettlement,
  topics: encodeEventTopics({
    abi: tabSettlementAbi,
    eventName: 'TabsSettled',
    args: { batchId: zeroHash, platform: signedPlatform },
  }) as Hex[],
  data: encodeAbiParameters(
    [{ type: 'uint16' }, { type: 'uint256[]' }, { type: 'bytes' }],
    [rewardShare, splits, `0x${tabs.join('')}`],
  ),
})

const tabBatch = (outcomes: Hex, ofToken?: Hex): Unplaced => ({
  ...settled(outcomes, ofToken),
  address: tabSettlement,
})

const read = (...logs: Unplaced[]) =>
  readReceipt(place(logs), { settlement, tabSettlement, token, platforms: [platform] })

test('default: reads an AuthorizationUsed event and its Transfer as one entry', () => {
  expect(read(used(1), transfer(5n))).toEqual({
    entries: [
      {
        state: 'used',
        authorizer: buyer,
        nonce: nonce(1),
        recipient: payee,
        value: 5n,
        logIndex: 7,
        batchLogIndex: null,
        half: null,
        tab: null,
      },
    ],
    unreadable: [],
    batches: [],
    payouts: [],
    paidByTabs: new Map(),
  })
})

test('default: the outcomes show which authorizations of a batch were the provider’s and which were fees', () => {
  const explained = read(
    used(1),
    transfer(1n),
    used(2),
    transfer(2n),
    used(3),
    transfer(3n),
    settled('0x1121'),
  )
  expect(explained.entries.map(({ half }) => half)).toEqual(['provider', 'fee', 'fee'])
  expect(explained.unreadable).toEqual([])
})

describe('only the token’s logs, in their order, are proof', () => {
  test.each([
    ['no log follows', [used(1)]],
    ['another log is between them', [used(1), settled('0x', other), transfer(5n)]],
    ['the transfer is from another account', [used(1), transfer(5n, other)]],
    ['the transfer is another token’s', [used(1), transfer(5n, buyer, other)]],
  ] as [string, Unplaced[]][])('behavior: records an index gap if %s', (_, logs) => {
    expect(read(...logs)).toMatchObject({
      entries: [],
      unreadable: [{ logIndex: 7, reason: 'unpaired_authorization' }],
    })
  })

  test('behavior: ignores AuthorizationUsed of another token', () => {
    const reading = read(used(1, other), transfer(5n, buyer, other))
    expect(reading).toMatchObject({ entries: [], unreadable: [], batches: [], payouts: [] })
  })

  test('behavior: an event and a Transfer with a gap between their log positions are not a pair', () => {
    const [first, second] = place([used(1), transfer(5n)])
    if (!first || !second) throw new Error('two logs')
    const logs = [first, { ...second, logIndex: numberToHex(20) }]
    expect(
      readReceipt(logs, { settlement, tabSettlement, token, platforms: [platform] }).unreadable,
    ).toHaveLength(1)
  })

  test('behavior: a cancellation is an entry without an amount, and belongs to no batch', () => {
    const { entries } = read(cancelled(1), used(2), transfer(5n), settled('0x10'))
    expect(entries).toMatchObject([
      { state: 'cancelled', nonce: nonce(1), recipient: null, value: null, batchLogIndex: null },
      { state: 'used', nonce: nonce(2), batchLogIndex: 10 },
    ])
  })

  test('behavior: a batch that settled n authorizations has the last n before its event, and none from before the previous batch’s event', () => {
    const pair = (n: number) => [used(n), transfer(BigInt(n))]
    const { entries } = read(
      ...[...pair(1), ...pair(2), settled('0x10')],
      ...[...pair(3), settled('0x10', other)],
      ...[...pair(4), settled('0x10'), ...pair(5)],
    )
    expect(entries.map(({ batchLogIndex }) => batchLogIndex)).toEqual([null, 11, null, 17, null])
  })

  test('behavior: ignores another contract’s BatchSettled, even among the logs of a batch', () => {
    const forged = { ...settled('0x11'), address: other }
    const { entries, batches } = read(used(1), transfer(1n), forged, used(2), transfer(2n), settled('0x11'))
    expect(entries.map(({ batchLogIndex, half }) => [batchLogIndex, half])).toEqual([
      [12, 'provider'],
      [12, 'fee'],
    ])
    expect(batches).toEqual([12])
  })

  test('behavior: accepts addresses with upper-case letters', () => {
    const mixed: Hex = '0x00000000000000000000000000000000000000AA'
    expect(read(used(1, mixed), transfer(5n, buyer, mixed)).entries).toHaveLength(1)
  })

  test('behavior: records an index gap if there are more outcomes than logs, and keeps the entries without marking which are fees', () => {
    const { entries, unreadable } = read(used(1), transfer(1n), settled('0x11'))
    expect(entries).toMatchObject([{ nonce: nonce(1), batchLogIndex: 9, half: null }])
    expect(unreadable).toMatchObject([{ logIndex: 9, reason: 'outcomes_mismatch' }])
  })

  test('behavior: outcomes that can’t be decoded do not stop the index', () => {
    const { unreadable } = read(used(1), transfer(1n), { ...settled('0x11'), data: '0x1234' })
    expect(unreadable).toMatchObject([{ logIndex: 9, reason: 'outcomes_mismatch' }])
  })
})

describe('each entry of a transaction is recorded by exactly one of its batches', () => {
  const reading = read(
    ...[used(1), transfer(1n), used(2), transfer(2n), settled('0x10')],
    ...[used(3), transfer(3n), settled('0x10', other), used(9)],
    ...[used(4), transfer(4n), settled('0x10'), cancelled(5), used(6), transfer(6n)],
  )

  test('behavior: each batch records the entries up to its event, and the last batch also records the entries after it', () => {
    const shares = reading.batches.map((logIndex) => shareOf(reading, logIndex))
    expect(shares.map(({ entries }) => entries.map((entry) => Number(entry.nonce)))).toEqual([
      [1, 2],
      [3, 4, 5, 6],
    ])
    expect(shares.map(({ unreadable }) => unreadable.length)).toEqual([0, 1])
  })
})

test.each([
  ['0x', 0],
  ['0x11', 1],
  ['0x10', 1],
  ['0x21', 1],
  ['0x34', 0],
  ['0x112200', 1],
  ['0x1121103400', 3],
] as [Hex, number][])(
  'default: the outcomes %s contain %i payments with a settled authorization',
  (outcomes, count) => {
    expect(countPayments(outcomes)).toBe(count)
  },
)

describe('payouts', () => {
  const payouts = (...logs: Unplaced[]) => read(...logs).payouts

  test('default: a payout is two consecutive Transfers of one sender', () => {
    expect(
      payouts(
        used(1),
        transfer(20n),
        settled('0x10'),
        transfer(1n, other, token, platform),
        transfer(19n, other),
      ),
    ).toEqual([
      {
        splitter: other,
        platformRecipient: platform,
        platformAmount: 1n,
        provider: payee,
        providerAmount: 19n,
        logIndex: 10,
      },
    ])
  })

  test.each([
    [
      'the transfers have amount 0, so anyone can make them',
      [transfer(0n, other, token, platform), transfer(0n, other)],
    ],
    ['the platform’s part is 0', [transfer(0n, other, token, platform), transfer(19n, other)]],
    ['the second transfer is from another sender', [transfer(1n, other, token, platform), transfer(19n)]],
    [
      'both transfers are of another token',
      [transfer(1n, other, other, platform), transfer(19n, other, other)],
    ],
    ['one transfer is of another token', [transfer(1n, other, token, platform), transfer(19n, other, other)]],
    ['the first transfer isn’t to the platform', [transfer(1n, other), transfer(19n, other)]],
    ['there is only one transfer', [transfer(1n, other, token, platform)]],
    [
      'an authorization is between the transfers',
      [transfer(1n, other, token, platform), used(1), transfer(19n)],
    ],
  ] as [string, Unplaced[]][])('behavior: finds no payout if %s', (_, logs) => {
    expect(payouts(...logs)).toEqual([])
  })
})

describe('tabs', () => {
  const pull = (n: number, value: bigint) => [used(n), transfer(value, buyer, token, tabSettlement)]
  const pay = (to: Hex, value: bigint) => transfer(value, tabSettlement, token, to)
  const packed = (sequence: number, ...lines: [number, number][]) =>
    packedUnder(platform, 1_000, sequence, ...lines)
  const packedUnder = (
    signedPlatform: Hex,
    rewardShare: number,
    sequence: number,
    ...lines: [number, number][]
  ) =>
    `${signedPlatform}${rewardShare.toString(16).padStart(4, '0')}${sequence.toString(16).padStart(10, '0')}${lines
      .map(
        ([split, amount]) =>
          splits[split]?.toString(16).padStart(64, '0') + amount.toString(16).padStart(12, '0'),
      )
      .join('')}`

  test('default: each tab of a batch has its settled state, and the batch’s transfers show the recipients', () => {
    const { entries, paidByTabs, payouts } = read(
      ...pull(1, 300n),
      ...pull(2, 40n),
      tabsSettled(tab(3, [0, 100], [1, 200]), tab(1, [0, 40])),
      ...[pay(payee, 133n), pay(other, 190n), pay(platform, 9n), pay(platform, 8n)],
      tabBatch('0x1010'),
      ...pull(3, 5n),
    )
    expect(entries.map((entry) => [entry.tab, entry.batchLogIndex])).toEqual([
      [packed(3, [0, 100], [1, 200]), 16],
      [packed(1, [0, 40]), 16],
      [null, null],
    ])
    expect(paidByTabs.get(16)).toEqual(
      new Map([
        [payee, { paymentCount: 2, total: 133n }],
        [other, { paymentCount: 1, total: 190n }],
        [platform, { paymentCount: 2, total: 17n }],
      ]),
    )
    expect(payouts).toEqual([])
  })

  test('behavior: a tab has the platform and the reward that its payer signed, even if they are not the gateway’s', () => {
    const { entries } = read(
      ...pull(1, 40n),
      tabsSettledUnder(buyer, 10_000, tab(1, [0, 40])),
      ...[pay(payee, 38n), pay(buyer, 2n), tabBatch('0x10')],
    )
    expect(entries.map((entry) => entry.tab)).toEqual([packedUnder(buyer, 10_000, 1, [0, 40])])
  })

  test('behavior: if another token’s batch contains a batch of the token, ignores the outer batch’s tabs', () => {
    const { entries, batches } = read(
      ...pull(1, 7n),
      tabsSettled(tab(9, [0, 7])),
      ...pull(2, 40n),
      tabsSettled(tab(1, [1, 40])),
      ...[pay(other, 38n), pay(platform, 2n), tabBatch('0x10')],
      tabBatch('0x10', stranger),
    )
    expect(entries.map((entry) => entry.tab)).toEqual([null, packed(1, [1, 40])])
    expect(batches).toHaveLength(1)
  })

  test('behavior: ignores TabsSettled of another contract', () => {
    const { entries } = read(
      ...pull(1, 40n),
      { ...tabsSettled(tab(1, [1, 40])), address: other },
      tabBatch('0x10'),
    )
    expect(entries.map((entry) => entry.tab)).toEqual([null])
  })
})
