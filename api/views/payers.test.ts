import { storeRefund } from '@tollkeeper/ledger/acceptance/refunds'
import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { endPayments, type PaymentResult } from '@tollkeeper/ledger/queue/stages'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Address } from 'viem'
import { beforeEach, describe, expect, test } from 'vitest'
import { explain } from '../../test/support/explain.ts'
import { call, openShop } from '../../test/support/gateway.ts'
import { failPayments, voidNow } from '../../test/support/paymentPosition.ts'
import {
  type SeededPayment,
  seedHalf,
  seedPayment,
  seedSettlement,
  toCandidate,
} from '../../test/support/seedPayments.ts'
import { seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { findPayers, payerSorts } from './payerQueries.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)
const payers: [Address, Address, Address] = [randomHex(20), randomHex(20), randomHex(20)]
let second: string

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const answer = (path: string, { providerId, key } = shop) =>
  call<Body>(gateway.app, 'GET', `/providers/${providerId}${path}`, { key })
const get = async (path: string) => (await answer(path)).body

const dayMs = 86_400_000
const daysAgo = (days: number) => new Date(Date.now() - days * dayMs)
const isoDay = (days: number) => daysAgo(days).toISOString().slice(0, 10)

beforeEach(async () => {
  const { body } = await call<Body>(gateway.app, 'POST', `/providers/${shop.providerId}/endpoints`, {
    key: shop.key,
    json: {
      method: 'GET',
      url: 'https://weather.example/second',
      walletIds: [shop.walletId],
      pricing: { usdcPerUnit: '0.1' },
    },
  })
  second = body.endpointId
})

type Seed = { payer?: Address; days?: number; endpointId?: string; providerAmount?: bigint }

const pay = ({ days = 0.01, endpointId = shop.endpointId, ...payment }: Seed = {}) =>
  seedPayment(gateway.database, {
    provider: { ...shop, endpointIds: [endpointId] },
    acceptedAt: daysAgo(days),
    validBefore: Math.floor(Date.now() / 1000) + 90_000,
    ...payment,
  })
const settle = (payment: SeededPayment) => seedSettlement(gateway.database, payment)
const finalize = (
  { paymentId }: SeededPayment,
  kind: PaymentResult = 'settled',
  code: string | null = null,
) => endPayments(gateway.database, [{ paymentId, kind, code, isFinal: true }], new Date())
const fail = ({ paymentId }: SeededPayment) =>
  recordFailure(
    gateway.database,
    { paymentId, batchId: null, code: 'insufficient_balance', detail: '', isFinal: false },
    { now: new Date() },
  )
/** Seeds a partial refund of a payment; the refund has arrived. */
async function refund(payment: SeededPayment, value: bigint): Promise<void> {
  const candidate = toCandidate({
    source: 'refund',
    payer: shop.wallet as Address,
    halves: [seedHalf({ recipient: payment.payer, value })],
  })
  const of = { paymentId: payment.paymentId, number: 1, providerId: shop.providerId }
  expect(await storeRefund(gateway.database, of, candidate)).toBe('accepted')
  const [{ nonce }] = candidate.authorizations
  await settle({ paymentId: candidate.id, payer: candidate.payer, nonces: [nonce, nonce] })
}

/** Seeds payments of every kind: on both endpoints and a tab, by three payers, now and a month ago, final and not. */
async function seedYear(): Promise<void> {
  const [first, other, third] = payers
  const sold = []
  for (const [payer, days, endpointId] of [
    [first, 40, shop.endpointId],
    [first, 1, second],
    [first, 1, second],
    [other, 70, second],
    [other, 2, shop.endpointId],
    [third, 3, shop.endpointId],
  ] as const) {
    const payment = await pay({ payer, days, endpointId })
    await settle(payment)
    sold.push(payment)
  }
  for (const payment of sold.slice(0, 4)) await finalize(payment)
  await refund(sold[1] as SeededPayment, 20_000n)
  const failed = await pay({ payer: other, days: 2 })
  await finalize(failed, 'failed', 'expired')
  await failPayments(gateway.database, [(await pay({ payer: third, days: 1 })).paymentId])
  await fail(await pay({ payer: first }))
  await voidNow(gateway.database, await pay({ payer: other, providerAmount: 9_000_000n }))
  const tab = await seedTab(gateway.database, {
    payer: first,
    closedAt: daysAgo(0.1),
    sales: [
      { provider: { ...shop, endpointIds: [shop.endpointId] }, requests: 30, acceptedAt: daysAgo(0.2) },
      { provider: { ...shop, endpointIds: [second] }, requests: 12, acceptedAt: daysAgo(0.1) },
    ],
  })
  await settleTab(gateway.database, tab)
  await seedTab(gateway.database, {
    payer: third,
    closedAt: daysAgo(0.1),
    sales: [{ provider: { ...shop, endpointIds: [second] }, requests: 7 }],
  })
}

const summed = [
  'payments',
  'settledPayments',
  'outstandingPayments',
  'failedPayments',
  'gross_usdc',
  'fee_usdc',
  'net_usdc',
  'settled_usdc',
  'outstanding_usdc',
  'failed_usdc',
  'settled_fee_usdc',
] as const

const addUp = (rows: Body[]) =>
  Object.fromEntries(
    summed.map((name) => [
      name,
      rows.reduce(
        (sum, row) => sum + (name.endsWith('_usdc') ? parseUsdc(row[name]) : BigInt(row[name])),
        0n,
      ),
    ]),
  )

describe('sums', () => {
  test.each([
    ['all time', ''],
    ['30 days', `from=${isoDay(29)}`],
    ['a month ago', `from=${isoDay(60)}&to=${isoDay(30)}`],
    ['three months, with days at both ends', `from=${isoDay(80)}&to=${isoDay(1)}`],
  ])('behavior: sums over payers and over endpoints equal those of revenue: %s', async (_, period) => {
    await seedYear()
    const [total] = (await get(`/revenue?interval=total&${period}`)).revenue
    const { payers } = await get(`/payers?${period}`)
    const { activity } = await get(`/endpoint-activity?${period}`)
    expect(addUp(payers)).toEqual(addUp([total]))
    expect(addUp(activity)).toEqual(addUp([total]))
    const details = await Promise.all(
      payers.map(async (row: Body) => {
        const detail = await get(`/payers/${row.payer}?${period}`)
        expect(addUp(detail.endpoints)).toEqual(addUp([row]))
        const byTime = await get(`/revenue?payer=${row.payer}&interval=month&${period}`)
        expect(addUp(byTime.revenue).payments).toBeGreaterThanOrEqual(BigInt(row.payments))
        const { network, ...figures } = row
        expect(detail).toMatchObject({ ...figures, networks: [network] })
        return detail
      }),
    )
    for (const { endpointId, payers } of activity) {
      expect((await get(`/payers?endpointId=${endpointId}&${period}`)).payers).toHaveLength(payers)
      const bought = details.filter(({ endpoints }) =>
        endpoints.some((one: Body) => one.endpointId === endpointId),
      )
      expect(bought).toHaveLength(payers)
    }
  })

  test('behavior: sums stay the same when all payments become final', async () => {
    await seedYear()
    const read = async () => [await get('/payers'), await get(`/endpoint-activity?from=${isoDay(29)}`)]
    const before = await read()
    const rows = await gateway.database<{ paymentId: string; kind: PaymentResult | null }[]>`
      select s.payment_id as "paymentId", o.kind from sale s left join payment_result o using (payment_id)
      where s.provider_id = ${shop.providerId} and exists (
        select from authorization_event e where e.payment_id = s.payment_id and e.state = 'settled'
      )`
    for (const { paymentId } of rows) await finalize({ paymentId } as SeededPayment)
    expect(await read()).toEqual(before)
  })
})

describe('list', () => {
  test('behavior: shows who paid, with averages, refunds and the first payment', async () => {
    const first = await pay({ payer: payers[0], days: 40 })
    await settle(first)
    await finalize(first)
    await pay({ payer: payers[0], days: 1, providerAmount: 95_000n })
    await settle(await pay({ payer: payers[1], days: 1 }))
    await refund(first, 10_000n)
    const period = `from=${isoDay(29)}`
    expect((await get('/payers')).payers).toMatchObject([
      {
        payer: payers[0],
        network: 'localhost',
        payments: 2,
        gross_usdc: '0.147500',
        average_usdc: '0.073750',
        refunded_usdc: '0.010000',
        owed_usdc: '0.000000',
        isNew: null,
      },
      { payer: payers[1], payments: 1, average_usdc: '0.050000', refunded_usdc: '0.000000' },
    ])
    for (const query of ['network=localhost', `network=localhost&${period}`])
      expect((await get(`/payers?${query}`)).payers).toHaveLength(2)
    expect(await get(`/payers/${payers[0]}?network=localhost`)).toMatchObject({ payments: 2 })
    expect((await get('/endpoint-activity?network=localhost')).activity).toMatchObject([
      { payments: 3, payers: 2 },
    ])
    const { payers: recent } = await get(`/payers?${period}`)
    expect(recent).toMatchObject([
      { payer: payers[0], payments: 1, isNew: false, firstPaymentAt: expect.stringContaining(isoDay(40)) },
      { payer: payers[1], payments: 1, isNew: true },
    ])
    const who = async (query: string) =>
      (await get(`/payers?${query}`)).payers.map(({ payer }: Body) => payer)
    expect(await who(`state=new&${period}`)).toEqual([payers[1]])
    expect(await who(`state=returning&${period}`)).toEqual([payers[0]])
    expect((await get(`/payer-activity?interval=total&${period}`)).activity).toEqual([
      { startsAt: null, payers: 2, newPayers: 1, returningPayers: 1 },
    ])
    expect((await get(`/payer-activity?interval=month&from=${isoDay(60)}`)).activity.at(-1)).toMatchObject({
      newPayers: 1,
      returningPayers: 0,
    })
  })

  test.each([
    ['gross', 'gross_usdc'],
    ['payments', 'payments'],
    ['lastPayment', 'lastPaymentAt'],
  ] as const)(
    'behavior: pages by %s contain each payer once, with final and open payments',
    async (sort, field) => {
      for (let i = 0; i < 9; i++) {
        const payer = randomHex(20)
        for (let n = 0; n <= i % 3; n++) {
          const payment = await pay({ payer, days: 1 + i, providerAmount: BigInt(47_500 * (1 + (i % 4))) })
          if (i % 2 === 0) {
            await settle(payment)
            if (i % 4 === 0) await finalize(payment)
          }
        }
      }
      for (const period of ['', `&from=${isoDay(29)}`]) {
        const whole = (await get(`/payers?sort=${sort}${period}`)).payers
        expect(whole).toHaveLength(9)
        const values = whole.map((row: Body) => row[field])
        expect(values).toEqual(values.toSorted((a: never, b: never) => (a === b ? 0 : a > b ? -1 : 1)))
        const seen: Body[] = []
        for (let cursor = ''; ; ) {
          const { body } = await answer(
            `/payers?sort=${sort}${period}&limit=2${cursor && `&cursor=${cursor}`}`,
          )
          seen.push(...body.payers)
          if (body.cursor === null) break
          cursor = body.cursor
        }
        expect(seen).toEqual(whole)
      }
    },
  )

  test('behavior: finds payers with failures and with debts; a retried payment is not yet a debt', async () => {
    const [failing, owing, late] = payers
    await fail(await pay({ payer: failing }))
    await failPayments(gateway.database, [(await pay({ payer: owing })).paymentId], 'insufficient_balance')
    // The payment expired, but not because of the payer.
    await finalize(await pay({ payer: late }), 'failed', 'authorization_expired')
    await settle(await pay())
    const find = async (query: string) =>
      Object.fromEntries((await get(`/payers?${query}`)).payers.map((row: Body) => [row.payer, row]))
    for (const period of ['', `&from=${isoDay(2)}`]) {
      const found = await find(`state=failing${period}`)
      expect(Object.keys(found).sort()).toEqual([...payers].sort())
      expect(found[failing]).toMatchObject({ retryingPayments: 1, failedPayments: 0, owed_usdc: '0.000000' })
      expect(found[owing]).toMatchObject({ retryingPayments: 0, failedPayments: 1, owed_usdc: '0.047500' })
      expect(found[late]).toMatchObject({ failedPayments: 1, failed_usdc: '0.047500', owed_usdc: '0.000000' })
      expect(Object.keys(await find(`state=owing${period}`))).toEqual([owing])
    }
    await gateway.database`insert into forgiven_debt (payment_id, reason)
      select payment_id, 'goodwill' from payment_result where payer = ${owing}`
    expect(await find('state=owing')).toEqual({})
  })

  test('behavior: the debt on a tab is the amount that this provider did not receive, minus the amount that the platform covers', async () => {
    const { database: sql } = gateway
    const provider = { ...shop, endpointIds: [shop.endpointId] }
    const tab = await seedTab(sql, {
      payer: payers[0],
      sales: [
        { provider, requests: 30 },
        { provider, endpointId: second, requests: 10 },
      ],
    })
    await failPayments(sql, [tab.paymentId], 'insufficient_balance')
    // 40 requests cost 4,000 base units, of which the provider's part is 90%.
    expect(await get(`/payers/${payers[0]}`)).toMatchObject({ owed_usdc: '0.003600', failedPayments: 40 })
    await sql`
      insert into covered_default (payment_id, provider_id, payee, chain_id, payer, amount)
      values (${tab.paymentId}, ${shop.providerId}, ${shop.wallet}, 31337, ${payers[0]}, 600)`
    expect(await get(`/payers/${payers[0]}`)).toMatchObject({ owed_usdc: '0.003000' })
    await settleTab(sql, tab)
    expect(await get(`/payers/${payers[0]}`)).toMatchObject({ owed_usdc: '0.000000', failedPayments: 0 })
  })
})

test('behavior: a page reads few rows by an index, regardless of the number of payers', async () => {
  const { database: sql } = gateway
  const { providerId } = shop
  await sql`
    insert into payer_revenue (provider_id, period, starts_at, chain_id, payer, payments, failed_payments, gross, settled_net,
      first_accepted_at, last_accepted_at)
    select ${providerId}, 'all', 'epoch', 31337, '0x' || lpad(to_hex(n), 40, '0'), n, case when n % 1000 = 0 then 1 else 0 end,
      n * 7, n, now() - interval '1 day', now() - n * interval '1 second'
    from generate_series(1, 50000) n`
  await pay({ payer: payers[0] })
  await sql`analyze payer_revenue`
  const query = { providerId, testnet: true, limit: 20, now: new Date() } as const
  const after = { position: 140_000n, chainId: 31_337, payer: payers[0] }
  const middle = {
    lastPayment: { ...after, position: BigInt(Date.now() - 20_000_000) },
    gross: after,
    payments: after,
  }
  for (const sort of payerSorts) {
    for (const after of [null, middle[sort]]) {
      const read = await explain(sql, /^\s*with open/, (sql) => findPayers(sql, { ...query, sort, after }))
      const rows = Object.entries(read).filter(([way, count]) => way.endsWith('payer_revenue') && count > 200)
      expect([sort, rows]).toEqual([sort, []])
    }
    // 50 of all payers have failed payments.
    const found = await findPayers(sql, { ...query, sort, after: null, state: 'failing', limit: 100 })
    expect(found).toHaveLength(50)
  }
})

describe('privacy', () => {
  test('behavior: a provider sees nothing of what its payers buy from other providers', async () => {
    const other = await openShop(gateway.app)
    const [payer, stranger] = payers
    const pays = (who: Address, seller: typeof other) =>
      seedPayment(gateway.database, { provider: { ...seller, endpointIds: [seller.endpointId] }, payer: who })
    const before = await pay({ payer })
    await settle(before)
    const seen = await get(`/payers/${payer}`)
    // The payer has a debt, a retried payment and a payment with another provider.
    await failPayments(gateway.database, [(await pays(payer, other)).paymentId], 'insufficient_balance')
    await fail(await pays(payer, other))
    await pays(stranger, other)
    expect(await get(`/payers/${payer}`)).toEqual(seen)
    expect((await get('/payers')).payers).toHaveLength(1)
    expect((await get('/payers?state=owing')).payers).toEqual([])
    expect((await get('/payers?state=failing')).payers).toEqual([])
    // Whether an address ever paid another provider makes no difference.
    const unknown = await Promise.all(
      [stranger, randomHex(20)].map((address) => answer(`/payers/${address}`)),
    )
    expect(unknown.map(({ status, body }) => [status, body.code, body.detail])).toEqual(
      Array(2).fill([404, 'unknown_payer', unknown[0]?.body.detail]),
    )
    expect((await answer(`/payers/${payer}`, other)).body).toMatchObject({
      owed_usdc: '0.047500',
      payments: 2,
    })
  })

  test.each([
    '/payers',
    '/payers/0x71c7656ec7ab88b098defb751b7401b5f6d8976f',
    '/payer-activity',
    '/endpoint-activity',
  ])('error: rejects requests with another provider’s key and without a key: %s', async (path) => {
    const other = await openShop(gateway.app)
    const at = `/providers/${shop.providerId}${path}`
    expect((await call(gateway.app, 'GET', at, { key: other.key })).status).toBe(403)
    expect((await call(gateway.app, 'GET', at)).status).toBe(401)
  })
})

test.each([
  ['/payers?state=new', 'invalid_request'],
  ['/payers?state=returning', 'invalid_request'],
  ['/payers?state=rich', 'invalid_field'],
  ['/payers?sort=name', 'invalid_field'],
  ['/payers?cursor=abc', 'invalid_cursor'],
  [
    `/payers?cursor=${Buffer.from('["payers gross",{"position":"1e9","chainId":1,"payer":"0x"}]').toString('base64url')}`,
    'invalid_cursor',
  ],
  ['/payers/0x12', 'invalid_request'],
  ['/payers/vitalik.eth', 'invalid_request'],
  ['/payer-activity?interval=hour', 'invalid_field'],
  ['/payer-activity?from=2020-01-01', 'invalid_date_range'],
  ['/endpoint-activity?from=2026-11-21&to=2026-11-20', 'invalid_date_range'],
  ['/endpoint-activity?endpointId=ep_1', 'invalid_request'],
  ['/revenue?interval=hour&payer=0x71c7656ec7ab88b098defb751b7401b5f6d8976f', 'invalid_request'],
  ['/revenue?groupBy=wallet&payer=0x71c7656ec7ab88b098defb751b7401b5f6d8976f', 'invalid_request'],
])('error: rejects %s with %s', async (path, code) => {
  expect(await get(path)).toMatchObject({ code })
})
