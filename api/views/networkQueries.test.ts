import { dropBlock } from '@tollkeeper/ledger/facts/record'
import { endPayments, type PaymentResult, reopenPayments } from '@tollkeeper/ledger/queue/stages'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import type { Hex } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createMigratedDatabase } from '../../test/support/database.ts'
import { explain } from '../../test/support/explain.ts'
import { createIndexTables } from '../../test/support/indexTables.ts'
import { seedBatch } from '../../test/support/seedBatch.ts'
import { seedChainId, seedPayment, seedProvider, seedSettlement } from '../../test/support/seedPayments.ts'
import { listBatches, listSettlements } from './batchQueries.ts'
import { readNetworkActivity, readSettlementTimes } from './networkQueries.ts'

let sql: Database
const day = new Date('2026-11-21T00:00:00Z') // a Saturday
const daysBefore = (days: number) => new Date(day.getTime() - days * 86_400_000)
const otherChain = seedChainId + 1

beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(sql)
})
afterAll(() => sql.end())

/** Seeds two years of batches on two chains: three keepers send two batches a day each. Keeper 1 settles the most payments. */
async function seedTwoYears(): Promise<void> {
  await sql`
    with block as (
      insert into recorded_block (chain_id, number, hash, time)
      select chain, (731 - age) * 10 + n, '0x' || lpad(to_hex((731 - age) * 10 + n), 64, '0'),
        extract(epoch from ${day}::timestamptz) - age * 86400 + 30 * n
      from generate_series(0, 730) age, generate_series(1, 2) n, unnest(${[seedChainId, otherChain]}::int[]) chain
      where age <> 1
      returning *
    )
    insert into settled_batch (chain_id, block_id, block_time, position, log_index, tx_hash, sequence, keeper, trigger,
      payment_count, provider_total, fee_total, gas_used, gas_cost, is_first)
    select chain_id, id, time, number * 1048576 + keeper, keeper, hash, 1, '0x' || repeat('a' || keeper, 20), 1, 50 / keeper,
      400, 100, 25000, 4, true
    from block, generate_series(1, 3) keeper`
  await sql`analyze keeper_day`
}

test('default: sums by day and week, by keeper, and in total, for one network', async () => {
  await seedTwoYears()
  const asked = { chainId: seedChainId, keepers: 2 }
  const days = await readNetworkActivity(sql, { ...asked, interval: 'day', from: daysBefore(2) })
  const ofDay = { batches: 6, payments: 182, total: 3_000n, gasUsed: 150_000n, gasCost: 24n }
  expect(days).toEqual({
    total: { batches: 12, payments: 364, total: 6_000n, gasUsed: 300_000n, gasCost: 48n, keepers: 3 },
    // Nothing settled on the day in between.
    intervals: [
      { startsAt: daysBefore(2), ...ofDay },
      { startsAt: day, ...ofDay },
    ],
    keepers: [1, 2].map((n) => ({
      address: `0x${`a${n}`.repeat(20)}`,
      batches: 4,
      payments: 200 / n,
      total: 2_000n,
      gasUsed: 100_000n,
      gasCost: 16n,
      lastBlockTime: BigInt(day.getTime() / 1000 + 60),
    })),
  })
  const weeks = await readNetworkActivity(sql, { ...asked, interval: 'week', from: daysBefore(12) })
  expect(weeks.intervals.map(({ startsAt, batches }) => [startsAt, batches])).toEqual([
    [daysBefore(12), 42],
    [daysBefore(5), 30],
  ])
  const nothing = await readNetworkActivity(sql, { ...asked, chainId: 1, interval: 'day', from: day })
  expect(nothing).toMatchObject({ total: { batches: 0, keepers: 0 }, intervals: [], keepers: [] })
})

const explained = (run: (sql: Database) => Promise<unknown>) => explain(sql, /^\s*with (found|summed)/, run)

test('behavior: the queries read few rows, regardless of the number of earlier settlements', async () => {
  const month = { chainId: seedChainId, interval: 'day' as const, from: daysBefore(29), keepers: 50 }
  expect(await explained((sql) => readNetworkActivity(sql, month))).toEqual({
    'Index Scan keeper_day': 29 * 3,
    // The last batch of each keeper.
    'Index Scan settled_batch': 3,
  })

  // Adds 40,000 batches of another chain, a hundred a day; one keeper sends one in a thousand of them.
  const chainId = seedChainId + 2
  await sql`
    with block as (
      insert into recorded_block (chain_id, number, hash, time)
      select ${chainId}, n, '0x' || lpad(to_hex(n), 64, '0'), extract(epoch from ${day}::timestamptz) - (40000 - n) * 864
      from generate_series(1, 40000) n
      returning *
    )
    insert into settled_batch (chain_id, block_id, block_time, position, log_index, tx_hash, sequence, keeper, trigger,
      payment_count, provider_total, fee_total, gas_used, gas_cost, is_first)
    select chain_id, id, time, number << 20, 0, hash, number, '0x' || repeat(case number % 1000 when 0 then 'b1' else 'a1' end, 20),
      1, 1, 95, 5, 21000, 42000, true
    from block`
  await sql`analyze settled_batch, recorded_block`
  const list = { chainId }
  const rare: Hex = `0x${'b1'.repeat(20)}`
  const at = {
    blockTime: BigInt(day.getTime() / 1000 - 864 * 10_000),
    position: 30_000n * 2n ** 20n,
    chainId,
  }
  for (const [filter, after] of [
    [list, null],
    [{ ...list, keeper: rare }, null],
    [list, at],
    [{ ...list, keeper: rare }, at],
    [{ ...list, from: daysBefore(100), to: daysBefore(99) }, null],
    [{ ...list, keeper: rare, from: daysBefore(400), to: daysBefore(100) }, null],
  ] as const) {
    const read = await explained((sql) => listBatches(sql, filter, { after, limit: 21 }))
    // Each found batch is read by its key, with its block.
    expect([filter, read]).toEqual([
      filter,
      { 'Index Scan settled_batch': 42, 'Index Scan recorded_block': 21 },
    ])
  }
  const [newest] = await listBatches(sql, { ...list, keeper: rare }, { after: null, limit: 21 })
  expect(newest).toMatchObject({ sequence: 40_000, keeper: rare, total: 95n, feeTotal: 5n, gasCost: 42_000n })
  // An export reads the same rows, without the columns that it doesn't show.
  const [line] = await listSettlements(sql, { ...list, keeper: rare }, { after: null, limit: 1 })
  for (const column of ['keeper', 'batchPaymentCount', 'feeTotal', 'gasUsed'])
    expect(line).not.toHaveProperty(column)
  const { keeper, batchPaymentCount, feeTotal, gasUsed } = newest as NonNullable<typeof newest>
  expect(newest).toEqual({ ...line, keeper, batchPaymentCount, feeTotal, gasUsed })
  const page = await listBatches(sql, list, { after: at, limit: 2 })
  expect(page.map(({ sequence }) => sequence)).toEqual([29_999, 29_998])
})

test('behavior: a batch removed by a reorg leaves the sums; the gas of a transaction with several batches counts once', async () => {
  const chainId = seedChainId + 3
  const read = () => readNetworkActivity(sql, { chainId, interval: 'day', from: daysBefore(1), keepers: 5 })
  const blockTime = BigInt(day.getTime() / 1000)
  const at = { chainId, blockTime, keeper: '0xaa00000000000000000000000000000000000000' } as const
  const first = await seedBatch(sql, 1, at)
  const { txHash, blockNumber, blockHash } = await seedBatch(sql, 2, { ...at, blockTime: blockTime + 1n })
  await seedBatch(sql, 3, { ...at, txHash, blockNumber, blockHash, blockTime: blockTime + 1n, logIndex: 20 })
  const once = { payments: 3, total: 157_500n, gasUsed: 300_000n, gasCost: 300_000_000_000n }
  expect((await read()).total).toEqual({
    batches: 3,
    payments: 9,
    total: 472_500n,
    gasUsed: 600_000n,
    gasCost: 600_000_000_000n,
    keepers: 1,
  })
  await dropBlock(sql, chainId, { blockNumber, blockHash })
  expect(await read()).toMatchObject({
    total: { batches: 1, ...once, keepers: 1 },
    keepers: [{ address: at.keeper, lastBlockTime: blockTime, ...once }],
  })
  await dropBlock(sql, chainId, first)
  expect(await read()).toMatchObject({ total: { batches: 0, keepers: 0 }, intervals: [], keepers: [] })
  expect(await sql`select from batch_recipient where chain_id = ${chainId}`).toHaveLength(0)
})

test('behavior: settlement times are shown only for days or weeks with enough payments, and leave out a reopened payment', async () => {
  const provider = await seedProvider(sql)
  const chainTime = day.getTime() / 1000
  const ids: string[] = []
  const settleAfter = async (seconds: number, acceptedAt: Date) => {
    const payment = await seedPayment(sql, { provider, acceptedAt })
    const blockTime = acceptedAt.getTime() / 1000 + seconds
    await seedSettlement(sql, payment, { blockNumber: 100 + ids.length, blockTime })
    ids.push(payment.paymentId)
  }
  const finalize = (paymentIds: string[], kind: PaymentResult) =>
    endPayments(
      sql,
      paymentIds.map((paymentId) => ({ paymentId, kind, code: 'authorization_expired', isFinal: true })),
      day,
    )
  const times = (interval: 'day' | 'week' = 'day') =>
    readSettlementTimes(sql, { chainId: seedChainId, interval, from: daysBefore(12), least: 20 })
  for (let n = 1; n <= 19; n++) await settleAfter(n <= 10 ? 60 : 600, day)
  await settleAfter(5, daysBefore(1))
  // A payment that expired has no settlement time.
  const expired = await seedPayment(sql, { provider, acceptedAt: day, validBefore: chainTime + 3_600 })
  await finalize([expired.paymentId], 'failed')
  await finalize(ids, 'settled')
  expect(await times()).toEqual([])
  // Accurate within 5%, the width of a bucket.
  expect(await times('week')).toEqual([{ startsAt: daysBefore(5), median: 60, p95: 602 }])

  await settleAfter(86_000, day)
  await finalize(ids, 'settled')
  expect(await times()).toEqual([{ startsAt: day, median: 60, p95: 602 }])

  const [{ payments }] = await sql<
    [{ payments: number }]
  >`select sum(payments)::int as payments from settlement_time`
  await reopenPayments(sql, ids.slice(-1))
  expect(await times()).toEqual([])
  expect(
    await sql`select sum(payments)::int as payments, count(*) filter (where payments < 0)::int as below from settlement_time`,
  ).toEqual([{ payments: payments - 1, below: 0 }])
})
