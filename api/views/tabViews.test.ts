import { endPayments, type PaymentResult, reopenPayments } from '@tollkeeper/ledger/queue/stages'
import { beforeEach, expect, test } from 'vitest'
import { useDatabase } from '../../test/support/database.ts'
import { explain } from '../../test/support/explain.ts'
import { failPayments } from '../../test/support/paymentPosition.ts'
import {
  type SeedProvider,
  seedPayment,
  seedProvider,
  seedSettlement,
} from '../../test/support/seedPayments.ts'
import { type SeededTab, seedOlderState, seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { findPayers } from './payerQueries.ts'
import { findProviderPayments } from './providerPaymentQueries.ts'
import { findRevenue, type RevenueOptions } from './revenueQueries.ts'

const database = await useDatabase()
let provider: SeedProvider
let other: SeedProvider
beforeEach(async () => {
  provider = await seedProvider(database, 2)
  other = await seedProvider(database)
})

const day = new Date('2026-11-21T00:00:00Z')
const at = (hours: number) => new Date(day.getTime() + hours * 3_600_000)

const revenue = (query: Partial<RevenueOptions> = {}) =>
  findRevenue(database, {
    providerId: provider.providerId,
    interval: 'total',
    groupBy: 'none',
    testnet: true,
    from: at(-24),
    to: at(48),
    after: null,
    limit: 100,
    now: at(3),
    ...query,
  })
const payerPage = { testnet: true, sort: 'gross', after: null, limit: 10, now: at(3) } as const
const payers = () => findPayers(database, { providerId: provider.providerId, ...payerPage })

const finalize = ({ paymentId }: { paymentId: string }, kind: PaymentResult) =>
  endPayments(
    database,
    [{ paymentId, kind, code: kind === 'failed' ? 'authorization_used' : null, isFinal: true }],
    at(30),
  )

const payer = randomHex(20)
/** Seeds sales on two endpoints in two hours of one provider, and some of another provider. */
const seed = () =>
  seedTab(database, {
    payer,
    closedAt: at(2),
    sales: [
      { provider, requests: 10, acceptedAt: at(0.9) },
      { provider: other, requests: 7 },
      { provider, requests: 20, acceptedAt: at(1.5) },
      { provider, endpointId: provider.endpointIds[1] as string, requests: 5, acceptedAt: at(2) },
    ],
  })

const nothing = { payments: 0, settledPayments: 0, failedPayments: 0, voidedPayments: 0 }
/** 35 requests for 0.0001 USDC each. */
const open = {
  ...nothing,
  payments: 35,
  gross: 3_500n,
  fee: 350n,
  settledNet: 0n,
  settledFee: 0n,
  failedNet: 0n,
}

/**
 * The ways in which a tab can end, with the provider's sums before and after the result is final. If another state of the tab settled, the amounts
 * that this state left out may still arrive after a reorg. So these amounts count as failed only once the result is final.
 */
const endings: [
  string,
  (tab: SeededTab) => Promise<unknown>,
  PaymentResult,
  Partial<typeof open>,
  onlyFinal?: Partial<typeof open>,
][] = [
  [
    'settled',
    (tab) => settleTab(database, tab),
    'settled',
    { settledPayments: 35, settledNet: 3_150n, settledFee: 350n },
  ],
  [
    'settled by its payer with another platform',
    (tab) => settleTab(database, tab, { platform: payer }),
    'failed',
    { settledPayments: 35, settledNet: 3_150n, settledFee: 0n },
  ],
  [
    // The platform's part is 350. The payer signed a reward of 25% instead of 5%, so the platform loses 20% of it, which is 70.
    'settled by its payer with a larger reward',
    (tab) => settleTab(database, tab, { rewardShare: 2_500 }),
    'failed',
    { settledPayments: 35, settledNet: 3_150n, settledFee: 280n },
  ],
  [
    'failed',
    ({ paymentId }) => failPayments(database, [paymentId]),
    'failed',
    { failedPayments: 35, failedNet: 3_150n },
  ],
  [
    // The older state pays 1,700 of the line's 3,500 base units: the first sale completely, and 7 of the second sale's 20 requests.
    'settled by an older state',
    (tab) => seedOlderState(database, tab, [1_700n, 300n]),
    'failed',
    { settledPayments: 17, settledNet: 1_530n, settledFee: 170n },
    { failedPayments: 18, failedNet: 1_620n },
  ],
  [
    'settled by an older state that had nothing on its line',
    (tab) => seedOlderState(database, tab, [0n, 700n]),
    'failed',
    {},
    { failedPayments: 35, failedNet: 3_150n },
  ],
]

test('default: the requests of a closed tab are counted by endpoint and hour, for each provider separately', async () => {
  await seed()
  expect(await revenue()).toMatchObject([open])
  expect(await revenue({ providerId: other.providerId })).toMatchObject([{ payments: 7, gross: 700n }])
  expect(await revenue({ interval: 'hour' })).toMatchObject([
    { startsAt: at(2), payments: 5 },
    { startsAt: at(1), payments: 20 },
    { startsAt: at(0), payments: 10 },
  ])
  expect(await revenue({ endpointId: provider.endpointIds[0] as string })).toMatchObject([{ payments: 30 }])
  expect(await revenue({ groupBy: 'wallet' })).toMatchObject([{ wallet: provider.wallet, payments: 35 }])
  expect(await payers()).toMatchObject([
    { payer, payments: 35, gross: 3_500n, settledNet: 0n, firstPaymentAt: at(0.9), lastPaymentAt: at(2) },
  ])
})

test.each(endings)(
  'behavior: %s: the sums contain the result immediately, and still contain it once it is final',
  async (_, end, kind, sums, onlyFinal) => {
    const tab = await seed()
    await end(tab)
    const expectSums = async (expected: typeof open) => {
      expect(await revenue()).toMatchObject([expected])
      expect(await payers()).toMatchObject([{ payer, payments: 35, settledNet: expected.settledNet }])
    }
    await expectSums({ ...open, ...sums })
    await finalize(tab, kind)
    await expectSums({ ...open, ...sums, ...onlyFinal })
    expect(
      await database`select sum(payments)::int as summed from revenue where provider_id = ${provider.providerId} and period = 'day'`,
    ).toEqual([{ summed: 35 }])
    // A reorg below a block that counted as final: exactly what was added is subtracted, regardless of the lines' current state.
    await database`update tab_line set moved = null where payment_id = ${tab.paymentId}`
    await database`delete from authorization_event where payment_id = ${tab.paymentId}`
    await reopenPayments(database, [tab.paymentId])
    expect(await revenue()).toMatchObject([open])
    expect(
      await database`
      select sum(payments)::int as summed, sum(settled_net) as net, sum(failed_net) as lost from revenue
      where provider_id = ${provider.providerId} and period = 'day'`,
    ).toMatchObject([{ summed: 0, net: 0n, lost: 0n }])
  },
)

test('behavior: requests on tabs and ordinary payments are in one sum', async () => {
  const payment = await seedPayment(database, { provider, payer, acceptedAt: at(1) })
  await seedSettlement(database, payment)
  const tab = await seed()
  await settleTab(database, tab, { blockNumber: 101 })
  const both = { payments: 36, settledPayments: 36, gross: 53_500n, settledNet: 50_650n, settledFee: 2_850n }
  expect(await revenue()).toMatchObject([both])
  await finalize(tab, 'settled')
  expect(await revenue()).toMatchObject([both])
  await finalize(payment, 'settled')
  expect(await revenue()).toMatchObject([both])
  expect(await payers()).toMatchObject([{ payer, payments: 36 }])
})

test('behavior: the queries read few rows, regardless of the number of earlier sales', async () => {
  const { providerId } = provider
  for (const end of endings.slice(0, 3)) {
    const tab = await seed()
    await end[1](tab)
    await finalize(tab, end[2])
  }
  await seed()
  await database`
    insert into tab_sale (payment_id, number, position, provider_id, endpoint_id, chain_id, payer, payee, requests, provider_amount,
      fee_amount, accepted_at, arrived)
    select 'old' || n, 0, 0, ${providerId}, ${provider.endpointIds[0] as string}, 31337, ${payer}, ${provider.wallet}, 1, 90, 10,
      ${day}::timestamptz - n * interval '1 minute', 100
    from generate_series(1, 50000) n`
  await database`analyze tab_sale, payment, queue, payment_result, tab_line, tab_payment, revenue`
  const page = { providerId, after: null, limit: 5, now: at(3) }
  const read = async (run: (sql: typeof database) => Promise<unknown>) => {
    const rows = await explain(database, /^\s*with (page|part|open)/, run)
    // The other tables are too small here to use an index.
    return Object.entries(rows).filter(([way, count]) => way.endsWith('tab_sale') && count > 100)
  }
  for (const status of [undefined, 'failed', 'verified', 'retrying', 'voided'] as const)
    expect([status, await read((sql) => findProviderPayments(sql, { ...page, status }))]).toEqual([
      status,
      [],
    ])
  const open = {
    providerId,
    interval: 'total',
    groupBy: 'none',
    testnet: true,
    from: at(-24 * 300),
    to: at(48),
    now: at(3),
  } as const
  expect(await read((sql) => findRevenue(sql, { ...open, after: null, limit: 10 }))).toEqual([])
  expect(await read((sql) => findPayers(sql, { providerId, ...payerPage }))).toEqual([])
})
