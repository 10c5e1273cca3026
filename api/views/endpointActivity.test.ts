import { storeRefund } from '@tollkeeper/ledger/acceptance/refunds'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { beforeEach, expect, test } from 'vitest'
import { call } from '../../test/support/gateway.ts'
import {
  type SeedPayment,
  seedHalf,
  seedPayment,
  seedSettlement,
  seedTransfer,
  toCandidate,
} from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { createUsageCounters } from './usageCounters.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const get = async (path: string) =>
  (await call<Body>(gateway.app, 'GET', `/providers/${shop.providerId}${path}`, { key: shop.key })).body

const dayMs = 86_400_000
const daysAgo = (days: number) => new Date(Date.now() - days * dayMs)
const isoDay = (days: number) => daysAgo(days).toISOString().slice(0, 10)
const lastWeek = `from=${isoDay(6)}`

async function addEndpoint(path: string): Promise<string> {
  const { body } = await call<Body>(gateway.app, 'POST', `/providers/${shop.providerId}/endpoints`, {
    key: shop.key,
    json: {
      method: 'GET',
      url: `https://weather.example${path}`,
      walletIds: [shop.walletId],
      pricing: { usdcPerUnit: '0.1' },
    },
  })
  return body.endpointId
}

const pay = (days: number, endpointId = shop.endpointId, payment: Partial<SeedPayment> = {}) =>
  seedPayment(gateway.database, {
    provider: { ...shop, endpointIds: [endpointId] },
    acceptedAt: daysAgo(days),
    validBefore: Math.floor(Date.now() / 1000) + 90_000,
    ...payment,
  })

async function countCalls(days: number, endpointId: string, outcomes: Record<string, number>) {
  const counters = createUsageCounters({ sql: gateway.database, now: () => daysAgo(days).getTime() })
  for (const [outcome, calls] of Object.entries(outcomes))
    for (let n = 0; n < calls; n++) counters.count({ ...shop, endpointId }, outcome)
  await counters.flush()
}

test('behavior: shows revenue, payers and calls of each endpoint, next to the previous period’s figures', async () => {
  const second = await addEndpoint('/second')
  await addEndpoint('/never-called')
  const payer = randomHex(20)
  const paid = await pay(1, second, { payer, providerAmount: 95_000n, feeAmount: 5_000n })
  await seedSettlement(gateway.database, paid)
  await pay(2, second)
  await pay(9, second, { payer })
  await pay(8)
  await countCalls(1, second, { challenged: 5, paid: 2, insufficient_balance: 3, payment_replayed: 1 })
  await countCalls(2, second, { paid: 1, insufficient_balance: 1 })
  await countCalls(9, second, { challenged: 2, paid: 1 })
  const candidate = toCandidate({
    source: 'refund',
    payer: randomHex(20),
    halves: [seedHalf({ recipient: payer, value: 40_000n })],
  })
  const of = { paymentId: paid.paymentId, number: 1, providerId: shop.providerId }
  await storeRefund(gateway.database, of, candidate)
  const [{ nonce }] = candidate.authorizations
  await seedSettlement(gateway.database, {
    paymentId: candidate.id,
    payer: candidate.payer,
    nonces: [nonce, nonce],
  })

  const answer = await get(`/endpoint-activity?${lastWeek}`)
  expect(answer.activity).toMatchObject([
    {
      endpointId: second,
      payments: 2,
      gross_usdc: '0.150000',
      average_usdc: '0.075000',
      settled_usdc: '0.095000',
      refunded_usdc: '0.040000',
      payers: 2,
      newPayers: 1,
      calls: 13,
      challenged: 5,
      paid: 3,
      refused: { insufficient_balance: 4, payment_replayed: 1 },
      previous: { payments: 1, payers: 1, newPayers: 1, calls: 3, challenged: 2, paid: 1, refused: {} },
    },
    {
      endpointId: shop.endpointId,
      payments: 0,
      gross_usdc: '0.000000',
      average_usdc: '0.000000',
      payers: 0,
      calls: 0,
      previous: { payments: 1, payers: 1 },
    },
  ])
  const { activity: ever } = await get('/endpoint-activity')
  expect(ever).toMatchObject([
    { endpointId: second, payments: 3, payers: 2, newPayers: 2, previous: null },
    { endpointId: shop.endpointId, payments: 1, previous: null },
  ])
  expect((await get(`/endpoint-activity?endpointId=${second}&${lastWeek}`)).activity).toEqual([
    answer.activity[0],
  ])
  expect((await get('/endpoint-activity?testnet=false')).activity).toEqual([])
})

test('behavior: counts sales through the facilitator in a row without an endpoint', async () => {
  const value = 70_000n
  await seedTransfer(gateway.database, {
    id: newId('pay'),
    providerId: shop.providerId,
    halves: [seedHalf({ recipient: shop.wallet, value })],
    facilitation: { providerId: shop.providerId, paymentIdentifier: null },
  })
  await pay(1)
  const { activity } = await get(`/endpoint-activity?${lastWeek}`)
  expect(activity).toMatchObject([
    { endpointId: null, payments: 1, gross_usdc: '0.070000', payers: 1, calls: 0 },
    { endpointId: shop.endpointId, payments: 1 },
  ])
  expect((await get(`/payers?${lastWeek}`)).payers).toHaveLength(2)
})

test('behavior: pages contain each endpoint once, including those with equal revenue', async () => {
  const ids = [shop.endpointId, await addEndpoint('/1'), await addEndpoint('/2'), await addEndpoint('/3')]
  for (const id of ids) await pay(1, id)
  const whole = (await get('/endpoint-activity')).activity.map(({ endpointId }: Body) => endpointId)
  expect(whole).toEqual(ids.toSorted())
  const seen: string[] = []
  for (let cursor = ''; ; ) {
    const body = await get(`/endpoint-activity?limit=1${cursor && `&cursor=${cursor}`}`)
    seen.push(...body.activity.map(({ endpointId }: Body) => endpointId))
    if (body.cursor === null) break
    cursor = body.cursor
  }
  expect(seen).toEqual(whole)
})

test('behavior: counts by day and by month have the same totals as counts by hour', async () => {
  await countCalls(0.05, shop.endpointId, { challenged: 2, paid: 1 })
  await countCalls(3, shop.endpointId, { paid: 4, insufficient_balance: 2 })
  await countCalls(70, shop.endpointId, { paid: 8 })
  const total = async (query: string) =>
    (await get(`/usage?${query}`)).usage.reduce((sum: number, { calls }: Body) => sum + calls, 0)
  for (const interval of ['hour', 'day', 'total'])
    expect([interval, await total(`interval=${interval}&from=${isoDay(20)}&limit=1000`)]).toEqual([
      interval,
      9,
    ])
  for (const interval of ['month', 'total'])
    expect([interval, await total(`interval=${interval}`)]).toEqual([interval, 17])
})
