import { type Address, encodeAbiParameters, encodeEventTopics, type Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import { batchSettlementAbi } from './abi/batchSettlement.ts'
import { tabSettlementAbi } from './abi/tabSettlement.ts'
import { readTabBatches, type TransactionLog, tabsByUse } from './tabBatches.ts'

const address = (digit: string): Address => `0x${digit.repeat(40)}`
const [token, tabSettlement, platform, keeper, otherToken] = ['1', '2', '3', '4', '5'].map(address) as [
  Address,
  Address,
  Address,
  Address,
  Address,
]
const batchId: Hex = `0x${'7'.repeat(64)}`
const splits = [8n, 9n]

type Unplaced = Omit<TransactionLog, 'logIndex'>

const place = (...logs: Unplaced[]): TransactionLog[] => logs.map((log, logIndex) => ({ ...log, logIndex }))
const other: Unplaced = { address: token, topics: [`0x${'a'.repeat(64)}`], data: '0x' }

/** Returns the TabsSettled of a batch with one tab and one line. */
const begins = (amount: number, change: Partial<Unplaced> = {}, rewardShare = 1_000): Unplaced => ({
  address: tabSettlement,
  topics: encodeEventTopics({
    abi: tabSettlementAbi,
    eventName: 'TabsSettled',
    args: { batchId, platform },
  }) as Hex[],
  data: encodeAbiParameters(
    [{ type: 'uint16' }, { type: 'uint256[]' }, { type: 'bytes' }],
    [rewardShare, splits, `0x0001${'0'.repeat(9)}70001${amount.toString(16).padStart(12, '0')}`],
  ),
  ...change,
})

const ends = (of: Address = token, change: Partial<Unplaced> = {}): Unplaced => ({
  address: tabSettlement,
  topics: encodeEventTopics({
    abi: batchSettlementAbi,
    eventName: 'BatchSettled',
    args: { batchId, keeper, token: of },
  }) as Hex[],
  data: encodeAbiParameters(
    [
      { type: 'uint8' },
      ...Array.from({ length: 3 }, () => ({ type: 'uint256' }) as const),
      { type: 'bytes' },
    ],
    [1, 1n, 1n, 1n, '0x10'] as never,
  ),
  ...change,
})

const read = (...logs: Unplaced[]) => readTabBatches(place(...logs), { token, tabSettlement })
const tabOf = (amount: bigint, rewardShare = 1_000) => ({
  platform,
  rewardShare,
  sequence: 7,
  lines: [{ split: 9n, amount }],
})

describe('readTabBatches', () => {
  test('default: reads tabs with the terms that their payers signed', () => {
    expect(read(other, begins(40), other, ends())).toEqual([{ from: 1, to: 3, tabs: [tabOf(40n)] }])
    expect(read(begins(40, {}, 0), ends())).toEqual([{ from: 0, to: 1, tabs: [tabOf(40n, 0)] }])
  })

  test('behavior: reads several batches of one transaction, regardless of who called the contract', () => {
    expect(read(begins(1), ends(), other, begins(2), ends()).map(({ tabs }) => tabs)).toEqual([
      [tabOf(1n)],
      [tabOf(2n)],
    ])
  })

  test('behavior: ignores a batch of another token', () => {
    expect(read(begins(40), ends(otherToken))).toEqual([])
  })

  test('behavior: reads a batch nested in another token’s batch, but not the outer batch', () => {
    const nested = [begins(1), other, begins(2), ends(), other, ends(otherToken)]
    expect(read(...nested)).toEqual([{ from: 2, to: 3, tabs: [tabOf(2n)] }])
  })

  test('behavior: ignores events of another contract', () => {
    const elsewhere = { address: address('9') }
    expect(read(begins(40, elsewhere), ends(token, elsewhere))).toEqual([])
    expect(read(begins(40, elsewhere), ends())).toEqual([])
    expect(read(begins(40), ends(token, elsewhere))).toEqual([])
    expect(read(begins(1), begins(40, elsewhere), ends(token, elsewhere), ends())).toMatchObject([
      { tabs: [tabOf(1n)] },
    ])
  })

  test('behavior: accepts addresses in any case', () => {
    const upper = { address: tabSettlement.toUpperCase().replace('0X', '0x') as Address }
    expect(read(begins(40, upper), ends(token, upper))).toHaveLength(1)
  })
})

describe('tabsByUse', () => {
  test('default: assigns the last AuthorizationUsed events before TabsSettled to the tabs, one to each', () => {
    const [first, second] = [tabOf(1n), tabOf(2n)]
    const batches = [{ from: 9, to: 12, tabs: [first, second] }]
    expect([...tabsByUse(batches, [1, 5, 7, 10])]).toEqual([
      [5, first],
      [7, second],
    ])
  })

  test('behavior: accepts fewer AuthorizationUsed events than tabs', () => {
    expect([...tabsByUse([{ from: 3, to: 4, tabs: [tabOf(1n), tabOf(2n)] }], [])]).toEqual([])
  })
})
