import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { beforeEach, expect, test } from 'vitest'
import { call, openShop, signedBody } from '../../test/support/gateway.ts'
import { withoutIndex } from '../../test/support/indexTables.ts'
import { failPayments, voidNow } from '../../test/support/paymentPosition.ts'
import { received, seedBatch } from '../../test/support/seedBatch.ts'
import { type SeedPayment, seedPayment, seedPayout, seedSettlement } from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { createUsageCounters, type UsageCounters } from './usageCounters.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)
let at: string

beforeEach(() => {
  at = `/providers/${shop.providerId}`
})

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (path: string) => call<Body>(gateway.app, 'GET', `${at}${path}`, { key: shop.key })

const seed = (options: Partial<SeedPayment> = {}) =>
  seedPayment(gateway.database, {
    provider: { ...shop, endpointIds: [shop.endpointId] },
    acceptedAt: new Date(Date.now() - 600_000),
    ...options,
  })

async function settle(payment: Awaited<ReturnType<typeof seed>>, halves: (0 | 1)[] = [0, 1]) {
  return seedSettlement(gateway.database, payment, { halves })
}

const fail = ({ paymentId }: { paymentId: string }) =>
  recordFailure(
    gateway.database,
    {
      paymentId,
      batchId: null,
      isFinal: false,
      code: 'insufficient_balance',
      detail: 'ERC20: transfer amount exceeds balance',
    },
    { now: new Date() },
  )

/** Seeds one payment of each status. */
async function seedStatuses() {
  const { database } = gateway
  const verified = await seed()
  const settled = await seed()
  await settle(settled)
  const partially = await seed()
  await settle(partially, [0])
  const retrying = await seed()
  await fail(retrying)
  const failed = await seed()
  await failPayments(database, [failed.paymentId])
  const voided = await seed()
  await voidNow(database, voided)
  return { verified, settled, partially_settled: partially, retrying, failed, voided }
}

test('default: lists payments with their status', async () => {
  const seeded = await seedStatuses()
  const all = await get('/payments')
  expect(all.body.payments).toHaveLength(6)
  expect(all.body).toMatchObject({ cursor: null, indexedBlocks: { localhost: expect.any(Number) } })
  for (const [status, { paymentId }] of Object.entries(seeded)) {
    const { body } = await get(`/payments?status=${status}`)
    expect(body, status).toMatchObject({ payments: [{ paymentId, payment_status: status }], cursor: null })
  }
  expect((await get('/payments?status=settling')).body.payments).toEqual([])
  const [settled] = (await get('/payments?status=settled')).body.payments
  expect(settled).toMatchObject({
    network: 'localhost',
    totalUsdc: '50000',
    providerUsdc: '47500',
    platformUsdc: '2500',
    settledAt: '2026-11-21T12:00:00.000Z',
    transactionHash: expect.stringMatching(/^0x/),
  })
})

test('behavior: a payment to a splitter is shown as settled, and after the next sweep as paid out; the payout shows whether the platform was paid', async () => {
  const splitter = randomHex(20)
  const { paymentId, ...payment } = await seed({ splitter })
  const views = async () => {
    const [listed] = (await get('/payments')).body.payments
    const { body: timeline } = await get(`/payments/${paymentId}/timeline`)
    const { body: one } = await call<Body>(gateway.app, 'GET', `/payments/${paymentId}`)
    return { listed, timeline, one }
  }
  await settle({ paymentId, ...payment }, [0])
  // A sweep that came before the payment contains none of it.
  await seedPayout(gateway.database, { splitter, provider: shop.wallet, blockNumber: 99 })
  expect(await views()).toMatchObject({
    listed: { payment_status: 'settled', splitter, paidOutAt: null, payoutTransactionHash: null },
    timeline: { paidOut: null },
    one: { payment_status: 'settled', splitter, paidOut: null },
  })
  const hash = await seedPayout(gateway.database, {
    splitter,
    provider: shop.wallet,
    blockNumber: 101,
    platformRecipient: randomHex(20),
  })
  await seedPayout(gateway.database, { splitter, provider: shop.wallet, blockNumber: 102 })
  expect(await views()).toMatchObject({
    listed: { paidOutAt: '2026-11-21T12:01:40.000Z', payoutTransactionHash: hash },
    timeline: { paidOut: { transactionHash: hash, blockNumber: 101 } },
    one: { paidOut: { transactionHash: hash, blockNumber: 101, platformPaid: false } },
  })
})

test('behavior: a payment that became final with one half settled is still found as partially settled', async () => {
  const payment = await seed()
  await settle(payment, [0])
  const ending = { ...payment, kind: 'settled', code: null, isFinal: true } as const
  await endPayments(gateway.database, [ending], new Date())
  expect((await get('/payments?status=partially_settled')).body.payments).toHaveLength(1)
})

test('behavior: a payment counts as failed from the second in which it expires, even before it is marked as failed', async () => {
  const now = Math.floor(Date.now() / 1000)
  const { paymentId } = await seed({ validBefore: now + 60 })
  const settled = await seed({ validBefore: now + 60 })
  await settle(settled)
  const retrying = await seed({ validBefore: now + 60 })
  await gateway.database`
    update queue set stage = 'retrying', attempts = 1, first_failed_at = now(), next_at = now()
    where payment_id = ${retrying.paymentId}`
  const ids = async (query: string) =>
    (await get(`/payments?${query}`)).body.payments.map((payment: Body) => payment.paymentId)
  gateway.setNow((now + 60) * 1000 - 1)
  expect(await ids('status=failed')).toEqual([])
  expect(await ids('status=verified')).toEqual([paymentId])
  gateway.setNow((now + 60) * 1000)
  expect(await ids('status=failed')).toEqual([retrying.paymentId, paymentId])
  expect(await ids('status=failed&limit=1')).toEqual([retrying.paymentId])
  expect(await ids('status=verified')).toEqual([])
  expect(await ids('status=retrying')).toEqual([])
  expect(await ids('status=settled')).toEqual([settled.paymentId])
  expect((await get('/failures?status=failed')).body.failures).toHaveLength(2)
})

test('args: lists the top payers of a range of days', async () => {
  await seed({ acceptedAt: new Date('2026-11-18T10:00:00Z') })
  const { payer } = await seed({ acceptedAt: new Date('2026-11-20T10:00:00Z') })
  expect((await get('/payers')).body).toMatchObject({ from: null, to: null, payers: [{}, {}] })
  expect((await get('/payers?from=2026-11-19&to=2026-11-20T12:00:00Z')).body).toMatchObject({
    from: '2026-11-19T00:00:00.000Z',
    to: '2026-11-21T00:00:00.000Z',
    payers: [{ payer, payments: 1 }],
  })
  expect((await get('/payers?to=2026-11-18')).body.payers).toEqual([])
})

test('behavior: a reorg makes a settled payment unsettled in every view', async () => {
  const payment = await seed()
  await settle(payment)
  expect((await get('/revenue?interval=total')).body.revenue).toMatchObject([
    { settled_usdc: '0.047500', outstanding_usdc: '0.000000' },
  ])
  await gateway.database`delete from authorization_event where payment_id = ${payment.paymentId}`
  expect((await get('/revenue?interval=total')).body.revenue).toMatchObject([
    { settled_usdc: '0.000000', outstanding_usdc: '0.047500', gross_usdc: '0.050000', fee_usdc: '0.002500' },
  ])
  expect((await get('/payments')).body.payments).toMatchObject([
    { payment_status: 'verified', transactionHash: null },
  ])
})

test('args: filters payments by endpoint, payer, time and batch', async () => {
  const first = await seed({ acceptedAt: new Date('2026-11-20T10:00:00Z'), validBefore: 1_800_000_000 })
  const second = await seed({ acceptedAt: new Date('2026-11-20T11:00:00Z'), validBefore: 1_800_000_000 })
  const txHash = await settle(second)
  const ids = async (query: string) =>
    (await get(`/payments?${query}`)).body.payments.map(({ paymentId }: Body) => paymentId)
  expect(await ids(`endpointId=${shop.endpointId}`)).toEqual([second.paymentId, first.paymentId])
  expect(await ids(`endpointId=ep_${'0'.repeat(32)}`)).toEqual([])
  expect(await ids(`payer=${first.payer}`)).toEqual([first.paymentId])
  expect(await ids('from=2026-11-20T10:30:00Z&to=2026-11-21')).toEqual([second.paymentId])
  expect(await ids('to=2026-11-20T10:30:00%2B00:00')).toEqual([first.paymentId])
  expect(await ids(`tx_hash=${txHash}`)).toEqual([second.paymentId])
  expect(await ids('network=localhost&limit=1')).toEqual([second.paymentId])
})

test('behavior: searches by endpoint, payer, time and amount, in pages and with the same rows as CSV', async () => {
  const payer = randomHex(20)
  const wanted: string[] = []
  for (let i = 0; i < 12; i++) {
    const isWanted = i % 3 === 0
    const { paymentId } = await seed({
      payer: i % 2 === 0 ? payer : randomHex(20),
      acceptedAt: new Date(Date.now() - i * 60_000),
      providerAmount: isWanted ? 95_000n : 47_500n,
      feeAmount: isWanted ? 5_000n : 2_500n,
    })
    if (isWanted && i % 2 === 0) wanted.push(paymentId)
  }
  const search = `payer=${payer}&endpointId=${shop.endpointId}&min_usdc=0.1&max_usdc=0.100000`
  const found: string[] = []
  for (let cursor: string | null = ''; cursor !== null; ) {
    const { body }: { body: Body } = await get(`/payments?${search}&limit=1${cursor && `&cursor=${cursor}`}`)
    found.push(...body.payments.map((payment: Body) => payment.paymentId))
    cursor = body.cursor
  }
  expect(found).toEqual(wanted)
  const csv = await get(`/payments?${search}&format=csv`)
  const lines = (csv.body as string).trimEnd().split('\r\n')
  expect(lines.slice(1).map((line) => line.split(',')[1])).toEqual(wanted)
  expect((await get('/payments?min_usdc=0.1000001')).body.code).toBe('invalid_request')
  expect((await get('/payments?max_usdc=0.05')).body.payments).toHaveLength(8)
})

test('behavior: pages contain each payment once', async () => {
  const acceptedAt = new Date(Date.now() - 60_000)
  for (let i = 0; i < 7; i++) await seed(i < 4 ? { acceptedAt } : {})
  const seen: string[] = []
  for (let cursor = ''; ; ) {
    const { body } = await get(`/payments?limit=2${cursor && `&cursor=${cursor}`}`)
    seen.push(...body.payments.map(({ paymentId }: Body) => paymentId))
    if (body.cursor === null) break
    cursor = body.cursor
  }
  expect(seen).toHaveLength(7)
  expect(new Set(seen).size).toBe(7)
})

test('error: a cursor is valid only for its own list, even if another list has positions of the same form', async () => {
  for (let i = 0; i < 2; i++) await seed()
  const { cursor } = (await get('/payments?limit=1')).body
  expect((await get(`/payments?limit=1&cursor=${cursor}`)).status).toBe(200)
  expect((await get(`/failures?limit=1&cursor=${cursor}`)).body.code).toBe('invalid_cursor')
})

test('behavior: shows failures with their attempts and the time of the next attempt', async () => {
  const { retrying, failed } = await seedStatuses()
  expect((await get('/failures')).body.failures).toMatchObject([
    {
      paymentId: retrying.paymentId,
      attempts: 1,
      nextAttemptAt: expect.any(String),
      failures: [
        { attempt: 1, code: 'insufficient_balance', detail: 'ERC20: transfer amount exceeds balance' },
      ],
    },
  ])
  expect((await get('/failures?status=failed')).body.failures).toMatchObject([
    { paymentId: failed.paymentId, nextAttemptAt: null, failures: [] },
  ])
})

test('behavior: sums the revenue of payments of every status', async () => {
  await seedStatuses()
  const { body } = await get('/revenue?interval=total&groupBy=wallet')
  expect(body.revenue).toEqual([
    {
      startsAt: null,
      network: 'localhost',
      wallet: shop.wallet,
      payments: 5,
      settledPayments: 2,
      outstandingPayments: 2,
      failedPayments: 1,
      voidedPayments: 1,
      gross_usdc: '0.250000',
      fee_usdc: '0.012500',
      net_usdc: '0.237500',
      settled_usdc: '0.095000',
      paid_out_usdc: '0.095000',
      outstanding_usdc: '0.095000',
      failed_usdc: '0.047500',
      settled_fee_usdc: '0.002500',
    },
  ])
  expect((await get('/payers')).body.payers).toHaveLength(5)
})

test('behavior: a statement’s sums equal the revenue’s sums and the totals of its lines', async () => {
  const { settled, voided } = await seedStatuses()
  const address = randomHex(20)
  const splitter = await seed({ splitter: address })
  const month = new Date(Date.now() - 600_000).toISOString().slice(0, 7)
  // The month includes its first moment, but not the first moment of the next month.
  const first = new Date(`${month}-01`)
  await seed({ acceptedAt: first })
  await seed({ acceptedAt: new Date(first.getTime() - 1) })
  await settle(splitter, [0])
  // The payment is voided, but its fee settled anyway.
  await settle(voided, [1])
  // A payment of another month.
  await seed({ acceptedAt: new Date(Date.now() - 40 * 86_400_000) })
  const blockTime = BigInt(Math.floor(Date.now() / 1000))
  // One payment straight to the wallet, and one through its splitter.
  const recipients = [received(shop.wallet, 1, 47_500n), received(address, 1, 47_500n)]
  await seedBatch(gateway.database, 1, { blockTime, recipients, gasCost: 300_000n * 1_000_000_000n })
  const { body } = await get(`/statement?month=${month}`)
  const { revenue } = (await get(`/revenue?interval=month&groupBy=network&from=${month}-01`)).body
  const [{ startsAt, ...sums }] = revenue
  expect(startsAt).toBe(body.from)
  expect(body.networks).toEqual([
    {
      ...sums,
      testnet: true,
      asset: gateway.served.token,
      tabPayments: 0,
      refunds: 0,
      refunded_usdc: '0.000000',
      refunds_outstanding_usdc: '0.000000',
      // Two thirds of 300,000 gas at 1 gwei and 3,000 USD per ETH.
      gas: {
        platform: { batches: 0, gas_usdc: '0.000000' },
        others: { batches: 1, gas_usdc: '0.600000' },
      },
    },
  ])
  const csv = await get(`/statement?month=${month}&format=csv`)
  expect(csv.headers.get('content-type')).toBe('text/csv; charset=utf-8; header=present')
  const [header = [], ...lines] = (csv.body as string).split('\r\n').map((line) => line.split(','))
  lines.pop()
  expect(lines).toHaveLength(8)
  const add = (column: string) => {
    const values = lines.map((line) => parseUsdc(line[header.indexOf(column)] ?? ''))
    return formatUsdc(values.reduce((a, b) => a + b, 0n))
  }
  for (const column of [
    'gross_usdc',
    'fee_usdc',
    'net_usdc',
    'settled_usdc',
    'settled_fee_usdc',
    'refunded_usdc',
  ])
    expect([column, add(column)]).toEqual([column, body.networks[0][column]])
  const cell = (paymentId: string, column: string) =>
    lines.find((line) => line[1] === paymentId)?.[header.indexOf(column)]
  expect(cell(settled.paymentId, 'settled_at')).toBe('2026-11-21T12:00:00.000Z')
  expect(cell(voided.paymentId, 'gross_usdc')).toBe('0.000000')
})

test('args: a statement covers its month in UTC, from the first to the last millisecond', async () => {
  const [from, to] = [Date.UTC(2025, 11), Date.UTC(2026, 0)]
  const payments = []
  for (const acceptedAt of [from - 1, from, to - 1, to])
    payments.push(await seed({ acceptedAt: new Date(acceptedAt) }))
  const { body } = await get('/statement?month=2025-12')
  expect(body).toMatchObject({
    from: '2025-12-01T00:00:00.000Z',
    to: '2026-01-01T00:00:00.000Z',
    networks: [{ payments: 2, gross_usdc: '0.100000' }],
  })
  const { body: csv } = await get('/statement?month=2025-12&format=csv')
  const lines = (csv as string).trimEnd().split('\r\n').slice(1)
  expect(lines.map((line) => line.split(',')[1])).toEqual(
    payments.slice(1, 3).map(({ paymentId }) => paymentId),
  )
})

test('behavior: usage counts calls by result', async () => {
  const counters: UsageCounters = createUsageCounters({ sql: gateway.database })
  const app = gateway.withOptions({ usage: counters })
  const payer = await gateway.buyer(1_000_000n)
  const body = await signedBody(gateway, shop, payer)
  const { key } = shop
  const junk = { ...body, macaroon: 'x' }
  expect((await call(app, 'POST', '/verify', { json: junk, key })).status).toBe(402)
  // Invalid requests of strangers don't count as this provider's refusals.
  expect((await call(app, 'POST', '/verify', { json: junk })).status).toBe(402)
  const { providerId, endpointId } = shop
  const below = { providerId, endpointId, pricing: { usdcPerUnit: '0.01' } }
  expect((await call(app, 'POST', '/challenge', { json: below })).status).toBe(422)
  expect((await call(app, 'POST', '/challenge', { json: { ...below, network: 'base' }, key })).status).toBe(
    422,
  )
  expect((await call(app, 'POST', '/verify', { json: body })).status).toBe(200)
  expect((await call(app, 'POST', '/verify', { json: body, key })).status).toBe(409)
  const challenge = `/challenge?providerId=${shop.providerId}&endpointId=${shop.endpointId}`
  expect((await call(app, 'GET', challenge)).status).toBe(200)
  // Calls to an unknown endpoint are not counted.
  await call(app, 'POST', '/verify', { json: { ...body, endpointId: `ep_${'0'.repeat(32)}` } })
  await counters.flush()
  expect((await get('/usage?interval=total')).body.usage).toEqual([
    {
      startsAt: null,
      endpointId: shop.endpointId,
      calls: 4,
      challenged: 1,
      paid: 1,
      refused: { macaroon_invalid: 1, payment_replayed: 1 },
    },
  ])
  expect((await get('/usage')).body.usage).toMatchObject([{ calls: 4 }])
})

test('behavior: counts of calls survive a database outage', async () => {
  const { database } = gateway
  const counters = createUsageCounters({ sql: database })
  await database`alter table usage rename to usage_away`
  counters.count(shop, 'paid')
  await expect(counters.flush()).rejects.toMatchObject({ code: '42P01' })
  await database`alter table usage_away rename to usage`
  counters.count(shop, 'paid')
  await counters.flush()
  expect((await get('/usage?interval=total')).body.usage).toMatchObject([{ paid: 2 }])
})

test.each([
  ['/payments?limit=0', 'invalid_field'],
  ['/payments?limit=abc', 'invalid_request'],
  ['/payments?status=paid', 'invalid_field'],
  ['/payments?payer=0x12', 'invalid_request'],
  ['/payments?network=solana', 'unknown_network'],
  ['/payments?cursor=abc', 'invalid_cursor'],
  ['/payments?from=yesterday', 'invalid_request'],
  ['/payments?from=0000-01-01', 'invalid_field'],
  ['/revenue?interval=month&to=9999-12-31', 'invalid_field'],
  ['/payments?endpointId=ep_%00', 'invalid_request'],
  [`/payments?cursor=${Buffer.from('["payments",1,"pay_\\u0000"]').toString('base64url')}`, 'invalid_cursor'],
  ['/payments?network=%00', 'unknown_network'],
  ['/revenue?interval=week', 'invalid_field'],
  ['/revenue?from=2026-11-21&to=2026-11-20', 'invalid_date_range'],
  ['/revenue?interval=hour&from=2025-01-01', 'invalid_date_range'],
  ['/usage?interval=day&from=2020-01-01', 'invalid_date_range'],
  ['/payers?from=2026-11-21&to=2026-11-20', 'invalid_date_range'],
  ['/statement', 'invalid_request'],
  ['/statement?month=2026-13', 'invalid_request'],
  ['/statement?month=2199-01', 'invalid_date_range'],
  ['/receipts?status=paid', 'invalid_field'],
])('error: rejects %s with %s', async (path, code) => {
  expect((await get(path)).body).toMatchObject({ code })
})

test('error: rejects requests without a key and with another provider’s key', async () => {
  const other = await openShop(gateway.app)
  for (const path of ['/payments', '/failures', '/revenue', '/payers', '/usage']) {
    expect((await call(gateway.app, 'GET', `${at}${path}`, { key: other.key })).status, path).toBe(403)
    expect((await call(gateway.app, 'GET', `${at}${path}`)).status, path).toBe(401)
  }
})

test('behavior: every view works without the index', async () => {
  const { settled } = await seedStatuses()
  await withoutIndex(gateway.database, async () => {
    for (const path of [
      ...['/payments', '/failures', '/revenue', '/payers', '/receipts', '/queue', '/batches'],
      ...['/payer-activity', '/endpoint-activity', `/payers/${settled.payer}`],
      ...[
        '/statement?month=2026-11',
        '/statement?month=2026-11&format=csv',
        `/payments/${settled.paymentId}/timeline`,
      ],
    ])
      expect([path, (await get(path)).status]).toEqual([path, 200])
  })
})

test('behavior: metrics need the token if one is set', async () => {
  const open = await call<string>(gateway.app, 'GET', '/metrics')
  expect(open.status).toBe(200)
  expect(open.headers.get('content-type')).toContain('text/plain')
  await get('/payments')
  const { body } = await call<string>(gateway.app, 'GET', '/metrics')
  expect(body).toContain(
    'tollkeeper_api_request_seconds_count{method="GET",route="/providers/:id/payments",status="200"}',
  )
  expect(body).not.toContain(shop.providerId)
  const closed = gateway.another({ metricsToken: 'scraper' })
  expect((await call(closed, 'GET', '/metrics')).status).toBe(401)
  expect((await call(closed, 'GET', '/metrics', { key: 'scraper' })).status).toBe(200)
})
