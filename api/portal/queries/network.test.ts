import type { Hex } from 'viem'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { endPayments, type OutcomeKind, reopenPayments } from '#ledger/queue/stages'
import { type Database, openDatabase } from '#ledger/store/database'
import { createMigratedDatabase } from '../../../test/support/database.ts'
import { createIndexTables } from '../../../test/support/indexTables.ts'
import { seedChainId, seedPayment, seedProvider, seedSettlement } from '../../../test/support/seedPayments.ts'
import { listSettledBatches, readNetworkActivity, readSettlementTimes } from './network.ts'

let sql: Database
const day = new Date('2026-11-21T00:00:00Z') // a Saturday
const daysBefore = (days: number) => new Date(day.getTime() - days * 86_400_000)
const otherChain = seedChainId + 1

beforeAll(async () => {
  sql = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(sql)
})
afterAll(() => sql.end())

/** Two years of three keepers on two chains, as Ponder would sum them: the first one settles the most. */
async function seedKeeperDays(): Promise<void> {
  await sql`
    insert into indexer.keeper_day (chain_id, day, address, batch_count, payment_count, total, gas_used, gas_cost, last_block_time)
    select chain, extract(epoch from ${day}::timestamptz) - age * 86400, '0x' || repeat('a' || keeper, 20), 2, 100 / keeper, 1000, 50000, 7,
      extract(epoch from ${day}::timestamptz) - age * 86400 + 60
    from generate_series(0, 730) age, generate_series(1, 3) keeper, unnest(${[seedChainId, otherChain]}::int[]) chain
    where age <> 1`
  await sql`analyze indexer.keeper_day`
}

test('default: sums by day and by week, by keeper, and of all; of one network alone', async () => {
  await seedKeeperDays()
  const asked = { chainId: seedChainId, keepers: 2 }
  const days = await readNetworkActivity(sql, { ...asked, interval: 'day', from: daysBefore(2) })
  const ofDay = { batches: 6, payments: 183, total: 3_000n, gasUsed: 150_000n, gasCost: 21n }
  expect(days).toEqual({
    total: { batches: 12, payments: 366, total: 6_000n, gasUsed: 300_000n, gasCost: 42n, keepers: 3 },
    // Nothing settled on the day between.
    intervals: [
      { startsAt: daysBefore(2), ...ofDay },
      { startsAt: day, ...ofDay },
    ],
    keepers: [1, 2].map((n) => ({
      address: `0x${`a${n}`.repeat(20)}`,
      ...{ batches: 4, payments: 200 / n, total: 2_000n, gasUsed: 100_000n, gasCost: 14n },
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

type Plan = {
  'Node Type': string
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  Plans?: Plan[]
}

/** What a query reads of the index: the rows that it keeps and those that it throws away, by table and way of reading. */
async function explained(run: (sql: Database) => Promise<unknown>): Promise<Record<string, number>> {
  const read: Record<string, number> = {}
  const visit = (node: Plan): void => {
    const name = node['Relation Name']
    if (name) {
      const rows = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
      const way = `${node['Node Type'].replace('Bitmap Heap', 'Index')} ${name}`
      read[way] = (read[way] ?? 0) + rows
    }
    for (const inner of node.Plans ?? []) visit(inner)
  }
  const explaining = ((parts: TemplateStringsArray, ...values: unknown[]) => {
    const isWhole = /^\s*(select|with)/.test(parts[0] ?? '')
    if (!isWhole) return sql(parts, ...(values as never[]))
    const [first = '', ...rest] = parts
    const explain = Object.assign([`explain (analyze, format json) ${first}`, ...rest], { raw: parts.raw })
    return sql(explain as unknown as TemplateStringsArray, ...(values as never[])).then(([row]) => {
      visit(row?.['QUERY PLAN'][0].Plan)
      return []
    })
  }) as unknown as Database
  await run(explaining)
  return read
}

test('behavior: what was settled before costs nothing, however much it was', async () => {
  const month = { chainId: seedChainId, interval: 'day' as const, from: daysBefore(29), keepers: 50 }
  expect(await explained((sql) => readNetworkActivity(sql, month))).toEqual({
    'Index Scan keeper_day': 29 * 3,
  })

  // 40,000 batches, a hundred a day, of which one keeper sends one in a thousand.
  await sql`
    insert into indexer.batch (chain_id, tx_hash, log_index, sequence, batch_id, keeper, token, trigger, authorizations,
      payment_count, provider_total, fee_total, outcomes, block_number, block_hash, block_time, gas_used, effective_gas_price)
    select ${seedChainId}, '0x' || lpad(to_hex(n), 64, '0'), 1, n, '0x00', '0x' || repeat(case n % 1000 when 0 then 'b1' else 'a1' end, 20),
      '0x00', 1, 2, 1, 95, 5, '0x11', n, '0x00', extract(epoch from ${day}::timestamptz) - (40000 - n) * 864, 21000, 2
    from generate_series(1, 40000) n`
  await sql`analyze indexer.batch`
  const list = {
    chainId: seedChainId,
    keeper: undefined,
    from: undefined,
    to: undefined,
    after: null,
    limit: 21,
  }
  const rare: Hex = `0x${'b1'.repeat(20)}`
  const at = { blockTime: day.getTime() / 1000 - 864 * 10_000, sequence: 30_000 }
  for (const query of [
    list,
    { ...list, keeper: rare },
    { ...list, after: at },
    { ...list, keeper: rare, after: at },
    { ...list, from: daysBefore(100), to: daysBefore(99) },
    { ...list, keeper: rare, from: daysBefore(400), to: daysBefore(100) },
  ]) {
    expect([query, await explained((sql) => listSettledBatches(sql, query))]).toEqual([
      query,
      { 'Index Scan batch': 21 },
    ])
  }
  const [newest] = await listSettledBatches(sql, { ...list, keeper: rare })
  expect(newest).toMatchObject({ sequence: 40_000, keeper: rare, total: 100n, gasCost: 42_000n })
  const page = await listSettledBatches(sql, { ...list, after: at, limit: 2 })
  expect(page.map(({ sequence }) => sequence)).toEqual([29_999, 29_998])
})

test('behavior: times to settlement are of many payments or not shown, and a payment that is opened again leaves them', async () => {
  const provider = await seedProvider(sql)
  const chainTime = day.getTime() / 1000
  const ids: string[] = []
  const settleAfter = async (seconds: number, acceptedAt: Date) => {
    const payment = await seedPayment(sql, { provider, acceptedAt })
    const blockTime = acceptedAt.getTime() / 1000 + seconds
    await seedSettlement(sql, payment, { blockNumber: 100 + ids.length, blockTime })
    ids.push(payment.paymentId)
  }
  const conclude = (paymentIds: string[], kind: OutcomeKind) =>
    endPayments(
      sql,
      paymentIds.map((paymentId) => ({ paymentId, kind, code: 'authorization_expired', isFinal: true })),
      day,
    )
  const times = (interval: 'day' | 'week' = 'day') =>
    readSettlementTimes(sql, { chainId: seedChainId, interval, from: daysBefore(12), least: 20 })
  for (let n = 1; n <= 19; n++) await settleAfter(n <= 10 ? 60 : 600, day)
  await settleAfter(5, daysBefore(1))
  // One that expired took no time.
  const expired = await seedPayment(sql, { provider, acceptedAt: day, validBefore: chainTime + 3_600 })
  await conclude([expired.paymentId], 'failed')
  await conclude(ids, 'settled')
  expect(await times()).toEqual([])
  // Within 5 %, the width of a bucket.
  expect(await times('week')).toEqual([{ startsAt: daysBefore(5), median: 60, p95: 602 }])

  await settleAfter(86_000, day)
  await conclude(ids, 'settled')
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
