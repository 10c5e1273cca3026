import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createDatabaseInOtherZone } from '../../test/support/database.ts'
import { createIndexTables } from '../../test/support/indexTables.ts'
import { received, seedBatch } from '../../test/support/seedBatch.ts'
import {
  type SeedProvider,
  seedChainId,
  seedPayment,
  seedProvider,
  seedSettlement,
} from '../../test/support/seedPayments.ts'
import { seedTab } from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { listBatches } from './batchQueries.ts'
import { findGasShares } from './gasShares.ts'
import { readNetworkActivity, readSettlementTimes } from './networkQueries.ts'
import { findPayers } from './payerQueries.ts'
import { findProviderPayments } from './providerPaymentQueries.ts'
import { findRevenue, type RevenueInterval } from './revenueQueries.ts'
import { findUsage } from './usage.ts'
import { createUsageCounters } from './usageCounters.ts'

// Each instant is in exactly one UTC hour, day and month: a period begins with its first instant and ends before the next period's first
// instant. The database has another time zone, in which all these boundaries differ.

const monthStart = new Date('2026-12-01T00:00:00Z')
const later = (ms: number) => new Date(monthStart.getTime() + ms)
const lastMoment = later(-1)
const chainTime = BigInt(monthStart.getTime() / 1_000)
/** The month before and the month after. */
const months = [
  { from: new Date('2026-11-01T00:00:00Z'), to: monthStart },
  { from: monthStart, to: new Date('2027-01-01T00:00:00Z') },
] as const

let sql: Database
let provider: SeedProvider

beforeAll(async () => {
  sql = openDatabase({ url: await createDatabaseInOtherZone(), applicationName: 'test' })
  await createIndexTables(sql)
})
beforeEach(async () => {
  provider = await seedProvider(sql)
})
afterAll(() => sql.end())

const finalize = (...paymentIds: string[]) =>
  endPayments(
    sql,
    paymentIds.map((paymentId) => ({ paymentId, kind: 'settled', code: null, isFinal: true })),
    later(3_600_000),
  )

test('default: the database’s time zone isn’t UTC', async () => {
  const [row] = await sql<[{ zone: string }]>`select current_setting('timezone') as zone`
  expect(row.zone).toBe('Asia/Kolkata')
})

describe('payments', () => {
  /** Seeds a settled payment in the last millisecond before the month, and one in the month's first millisecond. */
  async function seedBoth(splitter?: `0x${string}`) {
    const both = []
    for (const acceptedAt of [lastMoment, monthStart]) {
      const payment = await seedPayment(sql, { provider, acceptedAt, ...(splitter && { splitter }) })
      await seedSettlement(sql, payment, {
        halves: splitter ? [0] : [0, 1],
        blockTime: Number(chainTime) + 60,
      })
      both.push(payment)
    }
    return both
  }
  const revenueOf = (interval: RevenueInterval, from: Date, to: Date) =>
    findRevenue(sql, {
      providerId: provider.providerId,
      interval,
      groupBy: 'none',
      testnet: true,
      from,
      to,
      after: null,
      limit: 10,
      now: later(0),
    })

  test.each([
    ['hour', 3_600_000],
    ['day', 86_400_000],
    ['month', 30 * 86_400_000],
  ] as const)(
    'behavior: revenue by %s counts each payment in its interval, final or not',
    async (interval, ms) => {
      const payments = await seedBoth()
      const [before, after] = [later(-ms), later(interval === 'month' ? 31 * 86_400_000 : ms)]
      const expectEach = async () => {
        const starts = (await revenueOf(interval, before, after)).map((row) => [row.startsAt, row.payments])
        expect(starts).toEqual([
          [monthStart, 1],
          [before, 1],
        ])
        expect(await revenueOf(interval, before, monthStart)).toMatchObject([
          { startsAt: before, payments: 1 },
        ])
        expect(await revenueOf(interval, monthStart, after)).toMatchObject([
          { startsAt: monthStart, payments: 1 },
        ])
      }
      await expectEach()
      await finalize(...payments.map(({ paymentId }) => paymentId))
      await expectEach()
    },
  )

  test('behavior: total revenue sums whole months and the days around them', async () => {
    const payments = []
    for (const at of ['2026-10-31T23:59:59.999Z', '2026-11-01T00:00:00Z', '2026-11-30T23:59:59.999Z'])
      payments.push(await seedPayment(sql, { provider, acceptedAt: new Date(at) }))
    for (const at of ['2026-12-01T00:00:00Z', '2026-12-04T23:59:59.999Z', '2026-12-05T00:00:00Z'])
      payments.push(await seedPayment(sql, { provider, acceptedAt: new Date(at) }))
    const count = async (from: string, to: string) => {
      const [row] = await revenueOf('total', new Date(from), new Date(to))
      return row?.payments ?? 0
    }
    const expectEach = async () => {
      expect(await count('2026-11-01', '2026-12-01')).toBe(2)
      expect(await count('2026-10-31', '2026-12-01')).toBe(3)
      expect(await count('2026-11-01', '2026-12-05')).toBe(4)
      expect(await count('2026-10-31', '2026-12-06')).toBe(6)
      expect(await count('2026-12-01', '2026-12-05')).toBe(2)
    }
    await expectEach()
    await finalize(...payments.map(({ paymentId }) => paymentId))
    await expectEach()
  })

  test('behavior: money waiting in a splitter counts in the month of its payment', async () => {
    const splitter = randomHex(20)
    await sql`
      insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
      select ${seedChainId}, token, ${splitter}, ${provider.wallet}, fee_recipient, 19, 1 from payment limit 1
      on conflict do nothing`
    await seedBoth(splitter)
    for (const { from, to } of months) {
      expect(await revenueOf('month', from, to)).toMatchObject([{ startsAt: from, waitingNet: 47_500n }])
      expect(await revenueOf('total', from, to)).toMatchObject([{ waitingNet: 47_500n }])
    }
  })

  test('behavior: a month’s top payers are those that paid within the month, whether their payments are final or not', async () => {
    const payments = await seedBoth()
    const expectEach = async () => {
      for (const [index, period] of months.entries()) {
        const page = { sort: 'gross', after: null, limit: 10, now: later(0) } as const
        const query = { providerId: provider.providerId, testnet: true, period, ...page }
        expect(await findPayers(sql, query)).toMatchObject([{ payer: payments[index]?.payer }])
      }
    }
    await expectEach()
    await finalize(...payments.map(({ paymentId }) => paymentId))
    await expectEach()
  })

  test('behavior: a month’s list contains the month’s first instant, but not the next month’s first instant', async () => {
    const payments = await seedBoth()
    const { providerId } = provider
    for (const [index, period] of months.entries()) {
      const page = { limit: 10, now: later(0), after: null }
      const { payments: found } = await findProviderPayments(sql, { providerId, ...period, ...page })
      expect(found).toMatchObject([{ paymentId: payments[index]?.paymentId }])
    }
  })

  test('behavior: requests on tabs count in their own month', async () => {
    for (const [index, acceptedAt] of [lastMoment, monthStart].entries())
      await seedTab(sql, { closedAt: later(60_000), sales: [{ provider, acceptedAt, requests: index + 1 }] })
    for (const [index, { from, to }] of months.entries())
      expect(await revenueOf('month', from, to)).toMatchObject([
        { payments: index + 1, tabPayments: index + 1 },
      ])
  })

  test('behavior: settlement times count on the day of the payment', async () => {
    const payments = await seedBoth()
    await finalize(...payments.map(({ paymentId }) => paymentId))
    const query = { chainId: seedChainId, interval: 'day', least: 1 } as const
    const starts = async (from: Date) =>
      (await readSettlementTimes(sql, { ...query, from })).map(({ startsAt }) => startsAt)
    expect(await starts(monthStart)).toEqual([monthStart])
    expect((await starts(later(-86_400_000))).slice(0, 2)).toEqual([later(-86_400_000), monthStart])
  })
})

describe('batches', () => {
  const chainId = seedChainId + 7
  test('behavior: a batch and its gas count at the time of its block', async () => {
    const recipients = [received(provider.wallet, 3, 150_000n)]
    const { providerId } = provider
    await seedBatch(sql, 1, { blockTime: chainTime - 1n, recipients, gasCost: 300n })
    await seedBatch(sql, 2, { blockTime: chainTime, recipients, gasCost: 700n })
    for (const [index, period] of months.entries()) {
      expect(await findGasShares(sql, { providerId, ...period })).toMatchObject([
        { batches: 1, cost: [300n, 700n][index] },
      ])
      const found = await listBatches(sql, { providerId, ...period }, { after: null, limit: 10 })
      expect(found).toMatchObject([{ gasCost: [300n, 700n][index] }])
    }
  })

  test('behavior: a keeper’s batches count on the UTC day of their blocks', async () => {
    const keeper = randomHex(20)
    await seedBatch(sql, 11, { chainId, keeper, blockTime: chainTime - 1n, gasCost: 300n })
    await seedBatch(sql, 12, { chainId, keeper, blockTime: chainTime, gasCost: 700n })
    const read = (from: Date) => readNetworkActivity(sql, { chainId, interval: 'day', from, keepers: 5 })
    expect((await read(later(-86_400_000))).intervals).toMatchObject([
      { startsAt: later(-86_400_000), gasCost: 300n },
      { startsAt: monthStart, gasCost: 700n },
    ])
    expect(await read(monthStart)).toMatchObject({ total: { batches: 1, gasCost: 700n } })
  })
})

test('behavior: calls count in their own hour, day and month', async () => {
  const [endpointId = ''] = provider.endpointIds
  const { providerId } = provider
  const clock = { now: 0 }
  const counters = createUsageCounters({ sql, now: () => clock.now })
  for (const [at, calls] of [
    [lastMoment, 1],
    [monthStart, 2],
  ] as const) {
    clock.now = at.getTime()
    for (let n = 0; n < calls; n++) counters.count({ providerId, endpointId }, 'paid')
  }
  await counters.flush()
  const read = (interval: 'hour' | 'day' | 'month', from: Date, to: Date) =>
    findUsage(sql, { providerId, interval, from, to, after: null, limit: 10 })
  for (const [interval, ms] of [
    ['hour', 3_600_000],
    ['day', 86_400_000],
    ['month', 30 * 86_400_000],
  ] as const) {
    const [before, after] = [later(-ms), later(interval === 'month' ? 31 * 86_400_000 : ms)]
    expect(await read(interval, before, monthStart)).toMatchObject([{ startsAt: before, calls: 1 }])
    expect(await read(interval, monthStart, after)).toMatchObject([{ startsAt: monthStart, calls: 2 }])
  }
})
