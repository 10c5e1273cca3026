import { type Ending, endPayments, reopenPayments } from '@tollkeeper/ledger/queue/stages'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { createMigratedDatabase } from '../../test/support/database.ts'
import { createIndexTables } from '../../test/support/indexTables.ts'
import { failPayments, voidNow } from '../../test/support/paymentPosition.ts'
import {
  type SeedProvider,
  seedChainId,
  seedPayment,
  seedPayout,
  seedProvider,
  seedSettlement,
} from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { findPayers } from './payerQueries.ts'
import { findRevenue, type RevenueOptions } from './revenueQueries.ts'

let database: Database
let provider: SeedProvider
const day = new Date('2026-11-21T00:00:00Z')
const at = (hours: number) => new Date(day.getTime() + hours * 3_600_000)
const chainTime = (hours: number) => at(hours).getTime() / 1000

beforeAll(async () => {
  database = openDatabase({ url: await createMigratedDatabase(), applicationName: 'test' })
  await createIndexTables(database)
})
beforeEach(async () => {
  provider = await seedProvider(database, 2)
})
afterAll(() => database.end())

const revenue = (query: Partial<RevenueOptions> = {}) =>
  findRevenue(database, {
    providerId: provider.providerId,
    interval: 'total',
    groupBy: 'none',
    testnet: true,
    from: at(-24 * 400),
    to: at(24),
    after: null,
    limit: 100,
    now: at(3),
    ...query,
  })

/** Finalizes a payment, so that it can't move any more. */
const finalize = ({ paymentId }: { paymentId: string }, kind: Ending['kind'] = 'settled') =>
  endPayments(
    database,
    [{ paymentId, kind, code: kind === 'failed' ? 'expired' : null, isFinal: true }],
    at(5),
  )
const forget = ({ paymentId }: { paymentId: string }) =>
  database`delete from authorization_event where payment_id = ${paymentId}`

/** Seeds five payments: one settled, one waiting, one failed, one voided, and one that settled except for its fee. */
async function seedMix() {
  const settled = await seedPayment(database, { provider, acceptedAt: at(1) })
  await seedSettlement(database, settled)
  const waiting = await seedPayment(database, { provider, acceptedAt: at(1.5) })
  const failed = await seedPayment(database, { provider, acceptedAt: at(2), validBefore: chainTime(3) })
  await failPayments(database, [failed.paymentId])
  const voided = await seedPayment(database, { provider, acceptedAt: at(2.5), validBefore: chainTime(3) })
  await voidNow(database, voided)
  const partial = await seedPayment(database, { provider, acceptedAt: at(3), validBefore: chainTime(4) })
  await seedSettlement(database, partial, { halves: [0] })
  return { settled, waiting, failed, voided, partial }
}

const mixTotal = {
  startsAt: null,
  endpointId: null,
  chainId: null,
  wallet: null,
  payments: 4,
  voidedPayments: 1,
  settledPayments: 2,
  failedPayments: 1,
  tabPayments: 0,
  gross: 200_000n,
  fee: 10_000n,
  settledNet: 95_000n,
  settledFee: 2_500n,
  failedNet: 47_500n,
  waitingNet: 0n,
}

test('default: sums payments in every state', async () => {
  await seedMix()
  expect(await revenue()).toEqual([mixTotal])
})

test('behavior: moving payments into the sums changes no figure', async () => {
  const { settled, failed, voided, partial } = await seedMix()
  for (const [payment, kind] of [
    [settled, 'settled'],
    [failed, 'failed'],
    [voided, 'voided'],
    [partial, 'settled'],
  ] as const) {
    await finalize(payment, kind)
    expect(await revenue()).toEqual([mixTotal])
  }
  expect(
    await database`
      select sum(payments + voided_payments)::int as summed from revenue
      where provider_id = ${provider.providerId} and period = 'day'`,
  ).toEqual([{ summed: 4 }])
  expect(await revenue({ interval: 'hour' })).toMatchObject([
    { startsAt: at(3), settledNet: 47_500n, settledFee: 0n },
    { startsAt: at(2), payments: 1, voidedPayments: 1, failedNet: 47_500n },
    { startsAt: at(1), payments: 2, settledNet: 47_500n },
  ])
})

test('behavior: a reopened payment leaves the sums', async () => {
  const { settled } = await seedMix()
  await finalize(settled)
  // A reorg below a block that counted as final.
  await forget(settled)
  expect(await revenue()).toMatchObject([{ settledNet: 95_000n }])
  await reopenPayments(database, [settled.paymentId])
  expect(await revenue()).toMatchObject([
    { payments: 4, settledPayments: 1, settledNet: 47_500n, gross: 200_000n },
  ])
})

test('behavior: the revenue shows a reorg immediately', async () => {
  const { settled } = await seedMix()
  await forget(settled)
  expect(await revenue()).toMatchObject([{ settledPayments: 1, settledNet: 47_500n, settledFee: 0n }])
})

test('behavior: payments that two processes finalize at the same time are in the sums once', async () => {
  const payments = []
  for (let i = 0; i < 30; i++) {
    const payment = await seedPayment(database, { provider, acceptedAt: at(1) })
    await seedSettlement(database, payment)
    payments.push(payment)
  }
  const endings = payments.map(
    ({ paymentId }) => ({ paymentId, kind: 'settled', code: null, isFinal: true }) as const,
  )
  await Promise.all([1, 2, 3].map(() => endPayments(database, endings, at(5))))
  expect(await revenue()).toMatchObject([{ settledPayments: 30, settledNet: 30n * 47_500n }])
})

test('args: sums by interval and group, in pages', async () => {
  const [first = '', second = ''] = provider.endpointIds
  await seedPayment(database, { provider, endpointId: first, acceptedAt: at(1) })
  const finalized = await seedPayment(database, { provider, endpointId: second, acceptedAt: at(2) })
  await seedSettlement(database, finalized)
  await finalize(finalized)
  await seedPayment(database, { provider, endpointId: first, acceptedAt: at(-24) })
  await seedPayment(database, { provider, endpointId: first, acceptedAt: at(-24 * 21) })
  expect(await revenue({ interval: 'month' })).toMatchObject([
    { startsAt: new Date('2026-11-01T00:00:00Z'), payments: 3 },
    { startsAt: new Date('2026-10-01T00:00:00Z'), payments: 1 },
  ])
  const days = await revenue({ interval: 'day', groupBy: 'endpoint' })
  expect(days.map(({ startsAt, payments }) => [startsAt, payments])).toEqual([
    [at(0), 1],
    [at(0), 1],
    [at(-24), 1],
    [at(-24 * 21), 1],
  ])
  const pages = []
  for (let after: RevenueOptions['after'] = null; ; ) {
    const [row] = await revenue({ interval: 'day', groupBy: 'endpoint', limit: 1, after })
    if (!row) break
    pages.push(row)
    after = { startsAt: row.startsAt, group: row.endpointId ?? '' }
  }
  expect(pages).toEqual(days)
  expect(await revenue({ groupBy: 'wallet' })).toMatchObject([
    { chainId: seedChainId, wallet: provider.wallet, payments: 4 },
  ])
  expect(await revenue({ groupBy: 'network' })).toMatchObject([{ chainId: seedChainId, wallet: null }])
  expect(await revenue({ endpointId: second })).toMatchObject([{ payments: 1, settledPayments: 1 }])
  expect(await revenue({ chainId: 1 })).toEqual([])
})

test('behavior: lists top payers, whether their payments are in the sums or not', async () => {
  const big = await seedPayment(database, { provider, providerAmount: 9_000_000n, acceptedAt: at(1) })
  await seedSettlement(database, big)
  await finalize(big)
  const small = await seedPayment(database, { provider, acceptedAt: at(2) })
  const again = await seedPayment(database, { provider, payer: big.payer, acceptedAt: at(3) })
  const voided = await seedPayment(database, { provider, providerAmount: 99_000_000n, acceptedAt: at(3) })
  await voidNow(database, voided)
  expect(again.payer).toBe(big.payer)
  const query = {
    providerId: provider.providerId,
    testnet: true,
    sort: 'gross',
    after: null,
    now: at(3),
  } as const
  expect(await findPayers(database, { ...query, limit: 10 })).toMatchObject([
    {
      chainId: seedChainId,
      payer: big.payer,
      payments: 2,
      gross: 9_052_500n,
      settledNet: 9_000_000n,
      firstPaymentAt: at(1),
      lastPaymentAt: at(3),
    },
    {
      chainId: seedChainId,
      payer: small.payer,
      payments: 1,
      gross: 50_000n,
      settledNet: 0n,
      firstPaymentAt: at(2),
      lastPaymentAt: at(2),
    },
  ])
  const [first] = await findPayers(database, { ...query, limit: 1 })
  expect(first?.payer).toBe(big.payer)
})

test('args: lists top payers of whole days, whether a payment is in a month’s sum, in a day’s sum, or still open', async () => {
  const [january, february, march] = ['2026-01-15', '2026-02-10', '2026-03-03'].map(
    (date) => new Date(`${date}T12:00:00Z`),
  )
  const early = await seedPayment(database, {
    provider,
    providerAmount: 9_000_000n,
    acceptedAt: january as Date,
  })
  const middle = await seedPayment(database, {
    provider,
    providerAmount: 2_000_000n,
    acceptedAt: february as Date,
  })
  await seedPayment(database, { provider, payer: early.payer, acceptedAt: february as Date })
  const late = await seedPayment(database, { provider, payer: early.payer, acceptedAt: march as Date })
  const top = async (from: string, to: string) => {
    const period = { from: new Date(`${from}T00:00:00Z`), to: new Date(`${to}T00:00:00Z`) }
    const page = { sort: 'gross', after: null, limit: 10, now: at(3) } as const
    const found = await findPayers(database, {
      providerId: provider.providerId,
      testnet: true,
      period,
      ...page,
    })
    return found.map(({ payer, payments, settledNet }) => [payer, payments, settledNet])
  }
  const expectPeriods = async (settled: { early: bigint; middle: bigint }) => {
    // The periods are: a whole month, a month with days at both ends, days of one month only, and an empty one.
    expect(await top('2026-02-01', '2026-03-01')).toEqual([
      [middle.payer, 1, settled.middle],
      [early.payer, 1, 0n],
    ])
    expect(await top('2026-01-15', '2026-03-04')).toEqual([
      [early.payer, 3, settled.early],
      [middle.payer, 1, settled.middle],
    ])
    expect((await top('2026-02-10', '2026-02-11')).map(([payer]) => payer)).toEqual([
      middle.payer,
      early.payer,
    ])
    expect(await top('2026-02-11', '2026-03-03')).toEqual([])
    expect(await top('2026-03-03', '2026-03-04')).toEqual([[late.payer, 1, 0n]])
  }
  await expectPeriods({ early: 0n, middle: 0n })
  for (const payment of [early, middle]) {
    await seedSettlement(database, payment)
    await expectPeriods({ early: 9_000_000n, middle: payment === early ? 0n : 2_000_000n })
    await finalize(payment)
    await expectPeriods({ early: 9_000_000n, middle: payment === early ? 0n : 2_000_000n })
  }
  // When the payment is reopened, it leaves each of its sums and is read live.
  await forget(middle)
  await reopenPayments(database, [middle.paymentId])
  await expectPeriods({ early: 9_000_000n, middle: 0n })
})

test('behavior: a payment to a splitter is settled, but counts as paid out only once the splitter is swept after the payment', async () => {
  const splitter = randomHex(20)
  const paid = await seedPayment(database, { provider, acceptedAt: at(1), splitter })
  const waiting = await seedPayment(database, { provider, acceptedAt: at(2), splitter })
  await seedSettlement(database, paid, { halves: [0], blockNumber: 100 })
  await seedSettlement(database, waiting, { halves: [0], blockNumber: 110 })
  const sums = async () => {
    const [row] = await revenue()
    return row && [row.settledPayments, row.settledNet, row.settledFee, row.waitingNet]
  }
  expect(await sums()).toEqual([2, 95_000n, 5_000n, 95_000n])
  await seedPayout(database, { splitter, provider: provider.wallet, blockNumber: 105 })
  expect(await sums()).toEqual([2, 95_000n, 5_000n, 47_500n])
  await finalize(paid)
  await finalize(waiting)
  expect(await sums()).toEqual([2, 95_000n, 5_000n, 47_500n])
  // A reorg removes the payout.
  await database`delete from payout where splitter = ${splitter}`
  expect(await sums()).toEqual([2, 95_000n, 5_000n, 95_000n])
})
