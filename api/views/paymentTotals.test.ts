import { endPayments } from '@tollkeeper/ledger/queue/stages'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { beforeAll, describe, expect, test } from 'vitest'
import { call, openShop, type Shop } from '../../test/support/gateway.ts'
import { failPayments, voidNow } from '../../test/support/paymentPosition.ts'
import {
  type SeededPayment,
  type SeedPayment,
  seedHalf,
  seedPayment,
  seedSettlement,
  seedTransfer,
  storePayments,
} from '../../test/support/seedPayments.ts'
import { seedOlderState, seedTab, settleTab } from '../../test/support/seedTabs.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { maxSummed } from './paymentTotals.ts'

const gateway = useGateway()
const shop = useShop(gateway)
let other: Shop

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = (path: string, of = shop) =>
  call<Body>(gateway.app, 'GET', `/providers/${of.providerId}${path}`, { key: of.key })
const seller = (of: Shop) => ({ ...of, endpointIds: [of.endpointId] })

/** A UTC day that is over, so that filters can cover whole hours and days as well as parts of hours. */
const start = Math.floor(Date.now() / 86_400_000) * 86_400_000 - 3 * 86_400_000
const at = (minutes: number) => new Date(start + minutes * 60_000)

/** Refunds a payment, and settles the refund. */
async function refund(of: Shop, { paymentId, payer }: SeededPayment, value: bigint): Promise<void> {
  const back = await seedTransfer(gateway.database, {
    source: 'refund',
    payer: of.wallet,
    halves: [seedHalf({ recipient: payer, value })],
  })
  await gateway.database`insert into refund ${gateway.database({
    payment_id: back.paymentId,
    of_payment_id: paymentId,
    number: 1,
    provider_id: of.providerId,
    accepted_at: new Date(),
  })}`
  await seedSettlement(gateway.database, back, { halves: [0], blockNumber: 101 })
}

const payer = randomHex(20)
let txHash: string

beforeAll(async () => {
  const { database } = gateway
  other = await openShop(gateway.app)
  const seed = (minutes: number, options: Partial<SeedPayment> = {}) =>
    seedPayment(database, {
      provider: seller(shop),
      acceptedAt: at(minutes),
      validBefore: Math.floor(Date.now() / 1000) + 86_400,
      ...options,
    })
  const settled = await seed(5, { payer })
  txHash = await seedSettlement(database, settled)
  await refund(shop, settled, 20_000n)
  const final = await seed(65, { providerAmount: 950_000n, feeAmount: 50_000n })
  await seedSettlement(database, final)
  await refund(shop, final, 1_000_000n)
  const partial = await seed(70)
  await seedSettlement(database, partial, { halves: [0] })
  await seedSettlement(database, await seed(130, { feeAmount: 0n, providerAmount: 1_500_000n }))
  await seed(135)
  await failPayments(database, [(await seed(140)).paymentId])
  await voidNow(database, await seed(150))
  const lost = await seed(24 * 60 + 5, { payer })
  await seed(25 * 60)
  const sales = [
    { provider: seller(shop), requests: 12, acceptedAt: at(24 * 60 + 30) },
    { provider: seller(other), requests: 5 },
    { provider: seller(shop), requests: 8, acceptedAt: at(26 * 60 + 10) },
  ]
  const tab = { sales, closedAt: at(26 * 60 + 20), expiresAt: Math.floor(Date.now() / 1000) + 86_400 }
  await seedTab(database, tab)
  await settleTab(database, await seedTab(database, { ...tab, payer }))
  await seedOlderState(database, await seedTab(database, tab), [1_600n, 500n])
  await endPayments(
    database,
    [
      { paymentId: final.paymentId, kind: 'settled', code: null, isFinal: true },
      { paymentId: partial.paymentId, kind: 'settled', code: null, isFinal: true },
      { paymentId: lost.paymentId, kind: 'failed', code: 'authorization_expired', isFinal: true },
    ],
    new Date(),
  )
})

/** Adds up the lines of a filter's CSV. */
async function sumCsv(query: string, of: Shop) {
  const [head = '', ...lines] = String((await get(`/payments?format=csv&${query}`, of)).body)
    .trim()
    .split('\r\n')
  const names = head.split(',')
  const rows = lines.map((line) => Object.fromEntries(line.split(',').map((cell, n) => [names[n], cell])))
  const sum = (column: string) => rows.reduce((total, row) => total + parseUsdc(row[column] as string), 0n)
  const counted = rows.filter(({ status, tx_hash: moved }) => status !== 'voided' || moved !== '')
  return {
    payments: counted.reduce((total, { requests }) => total + Number(requests), 0),
    gross: sum('gross_usdc'),
    fee: sum('fee_usdc'),
    net: sum('net_usdc'),
    settled: sum('settled_usdc'),
    refunded: sum('refunded_usdc'),
  }
}

async function totalsOf(query: string, of = shop) {
  const { status, body } = await get(`/payments/totals?${query}`, of)
  expect([query, status]).toEqual([query, 200])
  expect(body.totals.length).toBeLessThanOrEqual(1)
  const [found] = body.totals
  const amount = (name: string) => parseUsdc(found?.[`${name}_usdc`] ?? '0')
  return {
    payments: found?.payments ?? 0,
    gross: amount('gross'),
    fee: amount('fee'),
    net: amount('net'),
    settled: amount('settled'),
    refunded: amount('refunded'),
    since: body.since,
    isRefundedComplete: body.isRefundedComplete,
  }
}

const iso = (minutes: number) => at(minutes).toISOString()
const statuses = ['verified', 'settling', 'settled', 'partially_settled', 'retrying', 'failed', 'voided']
const narrow: [filter: string, query: () => string][] = [
  ['no filter', () => ''],
  ...statuses.map((status): [string, () => string] => [`status ${status}`, () => `status=${status}`]),
  ['an endpoint', () => `endpointId=${shop.endpointId}`],
  ['a network', () => 'network=localhost'],
  ['test money', () => 'testnet=true'],
  ['real money', () => 'testnet=false'],
  ['a payer', () => `payer=${payer}`],
  ['an amount', () => 'min_usdc=0.05&max_usdc=1'],
  ['a transaction', () => `tx_hash=${txHash}`],
  ['whole days', () => `from=${iso(0)}&to=${iso(24 * 60)}`],
  ['whole hours', () => `from=${iso(60)}&to=${iso(180)}`],
  ['whole hours of several days', () => `from=${iso(60)}&to=${iso(26 * 60)}`],
  ['parts of hours', () => `from=${iso(68)}&to=${iso(26 * 60 + 15)}`],
  ['parts of one hour', () => `from=${iso(61)}&to=${iso(69)}`],
  ['everything since a time', () => `from=${iso(132)}`],
  ['everything before a time', () => `to=${iso(132)}`],
  ['the settled payments of a period', () => `status=settled&from=${iso(30)}&to=${iso(25 * 60)}`],
  ['the failed payments of a payer', () => `status=failed&payer=${payer}`],
  ['a period without payments', () => 'to=2026-01-01'],
]

describe('GET /providers/{id}/payments/totals', () => {
  test.each(narrow)('behavior: the totals equal the sums of the CSV’s lines for %s', async (_, query) => {
    for (const of of [shop, other])
      expect(await totalsOf(query(), of)).toEqual({
        ...(await sumCsv(query(), of)),
        since: null,
        isRefundedComplete: true,
      })
  })

  test('behavior: sums all payments if there is no filter', async () => {
    expect((await get('/payments/totals')).body).toMatchObject({
      totals: [
        {
          testnet: true,
          payments: 68,
          voidedPayments: 1,
          gross_usdc: '2.806000',
          fee_usdc: '0.065600',
          net_usdc: '2.740400',
          refunded_usdc: '1.020000',
        },
      ],
      since: null,
      indexedBlocks: { localhost: expect.any(Number) },
    })
  })

  test('behavior: if there are too many payments, returns the time since which the sums are complete', async () => {
    const great = await openShop(gateway.app)
    const count = maxSummed + 20
    await storePayments(
      gateway.database,
      Array.from({ length: count }, (_, n) => {
        const own = seedHalf({ recipient: great.wallet, value: 1_000n })
        const acceptedAt = at(Math.floor(n / 10))
        return {
          id: `pay_${(n + 1).toString(16).padStart(32, '0')}`,
          providerId: great.providerId,
          endpointId: great.endpointId,
          payee: great.wallet,
          halves: [own] as [typeof own],
          payer,
          acceptedAt,
        }
      }),
    )
    const bounded = (await get(`/payments/totals?payer=${payer}`, great)).body
    expect(bounded).toMatchObject({
      totals: [{ payments: maxSummed, gross_usdc: (maxSummed / 1_000).toFixed(6) }],
      since: at(2).toISOString(),
    })
    expect((await get('/payments/totals', great)).body).toMatchObject({
      totals: [{ payments: count }],
      since: null,
    })
    // Too many payments haven't settled, so the settled payments are searched one by one, and the sum is complete.
    expect((await get('/payments/totals?status=settled', great)).body).toMatchObject({
      totals: [],
      since: null,
    })
  })

  test("error: refuses another provider's key, and names the invalid field of a filter", async () => {
    const { status, body } = await call<Body>(
      gateway.app,
      'GET',
      `/providers/${shop.providerId}/payments/totals`,
      { key: other.key },
    )
    expect([status, body.code]).toEqual([403, 'forbidden'])
    expect((await get('/payments/totals?min_usdc=1,5')).body).toMatchObject({
      code: 'invalid_request',
      errors: [{ field: 'min_usdc' }],
    })
  })
})
