import { recordFailure } from '@tollkeeper/ledger/queue/failures'
import { splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import { beforeEach, expect, test } from 'vitest'
import { call, openShop } from '../../test/support/gateway.ts'
import { failPayments } from '../../test/support/paymentPosition.ts'
import { type SeedPayment, seedPayment, seedSettlement } from '../../test/support/seedPayments.ts'
import { randomHex, setBlacklisted } from '../../test/support/usdc.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway, beforeEach)

// biome-ignore lint/suspicious/noExplicitAny: answers have many shapes, and each test checks its own
type Body = any
const look = async (app = gateway.app, { providerId, key } = shop) =>
  (await call<Body>(app, 'GET', `/providers/${providerId}/attention`, { key })).body

const seed = (options: Partial<SeedPayment> = {}) =>
  seedPayment(gateway.database, {
    provider: { ...shop, endpointIds: [shop.endpointId] },
    acceptedAt: new Date(Date.now() - 600_000),
    ...options,
  })

const nothing = { payments: 0, isMore: false, net_usdc: '0.000000' }

test('behavior: a provider without problems gets empty lists, even if other providers have problems', async () => {
  await seedSettlement(gateway.database, await seed(), { halves: [0, 1] })
  const other = await openShop(gateway.app)
  const failed = await seed({ provider: { ...other, endpointIds: [other.endpointId] } })
  await failPayments(gateway.database, [failed.paymentId])
  expect(await look()).toEqual({
    suspendedAt: null,
    disabledAt: null,
    failed: nothing,
    retrying: nothing,
    webhooks: [],
    upstreamSecretExpiresAt: null,
    endpoints: [],
    withheld: [],
    gas: [{ money: 'test', limit_usd: '1000.000000', left_usd: '1000.000000', isShared: true }],
  })
  expect((await look(gateway.app, other)).failed).toEqual({ ...nothing, payments: 1, net_usdc: '0.047500' })
})

test('behavior: counts each payment once that failed this week or is retried', async () => {
  const [failed, old, retried] = [
    await seed(),
    await seed({ acceptedAt: new Date(Date.now() - 8 * 86_400_000) }),
    await seed(),
  ]
  await failPayments(gateway.database, [failed.paymentId, old.paymentId])
  await recordFailure(
    gateway.database,
    { paymentId: retried.paymentId, batchId: null, isFinal: false, code: 'insufficient_balance', detail: '' },
    { now: new Date() },
  )
  expect(await look()).toMatchObject({
    failed: { payments: 1, isMore: false, net_usdc: '0.047500' },
    retrying: { payments: 1, isMore: false, net_usdc: '0.047500' },
  })
})

test('behavior: at most a hundred failures are counted, and the answer says whether there are more', async () => {
  const ids = []
  for (let number = 0; number < 102; number++) ids.push((await seed()).paymentId)
  await failPayments(gateway.database, ids)
  const { failed } = await look()
  expect(failed).toMatchObject({ payments: 100, isMore: true })
})

test('behavior: lists a webhook with the reason if its newest messages failed, it answered 410, or its secret was rotated', async () => {
  const { database } = gateway
  const add = async (path: string) => {
    const json = { url: `http://127.0.0.1:9/${path}` }
    const at = `/providers/${shop.providerId}/webhooks`
    return (await call<Body>(gateway.app, 'POST', at, { key: shop.key, json })).body.webhookId
  }
  const [fine, failing, gone, rotated] = [
    await add('fine'),
    await add('failing'),
    await add('gone'),
    await add('rotated'),
  ]
  const deliver = async (webhookId: string, isDelivered: boolean) => {
    const [event] = await database<[{ id: bigint }]>`
      insert into outbox (event, provider_id, data) values ('batch.confirmed', ${shop.providerId}, '{}') returning id`
    const id = `whd_${randomHex(16).slice(2)}`
    await database`
      insert into webhook_delivery (id, outbox_id, webhook_id, message_id, attempts, delivered_at, created_at)
      values (${id}, ${event.id}, ${webhookId}, ${id}, 1, ${isDelivered ? new Date() : null}, now())`
    await database`
      insert into webhook_attempt (delivery_id, attempt, started_at, ended_at, status, failure)
      values (${id}, 1, now(), now(), ${isDelivered ? 200 : 500}, ${isDelivered ? null : 'http_500'})`
  }
  await deliver(fine, true)
  await deliver(failing, true)
  await deliver(failing, false)
  await database`update webhook set disabled_at = now() where id = ${gone}`
  await call(gateway.app, 'POST', `/providers/${shop.providerId}/webhooks/${rotated}/rotate`, {
    key: shop.key,
  })
  const { webhooks } = await look()
  expect(webhooks.map((one: Body) => one.webhookId)).toEqual([failing, gone, rotated])
  expect(webhooks[0]).toMatchObject({ undelivered: 1, ofLast: 2, failure: 'http_500', disabledAt: null })
  expect(webhooks[1].disabledAt).toEqual(expect.any(String))
  expect(webhooks[2].previousSecretExpiresAt).toEqual(expect.any(String))
  // A message that arrived after retries isn't a problem.
  await database`update webhook_delivery set delivered_at = now() where webhook_id = ${failing}`
  expect((await look()).webhooks).toHaveLength(2)
})

test('behavior: lists an endpoint on sale if its URL does not ask for the payment', async () => {
  const { database } = gateway
  await database`
    insert into endpoint_proof (endpoint_id, url, pay_to, checked_at, finding, finding_code)
    select e.id, e.url, w.address, now(), 'answered 200', 'serves_unpaid' from endpoint e join wallet w on w.id = e.wallet_id
    where e.id = ${shop.endpointId}
    on conflict (endpoint_id) do update set finding = excluded.finding, finding_code = excluded.finding_code,
      checked_at = now(), url = excluded.url`
  expect((await look()).endpoints).toMatchObject([
    {
      endpointId: shop.endpointId,
      isProven: false,
      code: 'serves_unpaid',
      finding: 'answered 200',
      advice: 'Put the middleware in front of this route, for this method.',
      checkedAt: expect.any(String),
    },
  ])
  await database`update endpoint set disabled_at = now() where id = ${shop.endpointId}`
  expect((await look()).endpoints).toEqual([])
})

test('behavior: shows what is left of today’s gas allowance: of the provider’s own grant if it has one, or of the shared allowance', async () => {
  const { database } = gateway
  const spend = (drawer: string, drawn: bigint) =>
    database`insert into gas_draw (day, drawer, drawn) values (${utcDay(new Date())}, ${drawer}, ${drawn})`
  await spend('refunds:test', 990_000_000n)
  expect((await look()).gas).toEqual([
    { money: 'test', limit_usd: '1000.000000', left_usd: '10.000000', isShared: true },
  ])
  await database`update provider set gas_grant = 5000000 where id = ${shop.providerId}`
  await spend(`${shop.providerId}:test`, 4_000_000n)
  expect((await look()).gas).toEqual([
    { money: 'test', limit_usd: '5.000000', left_usd: '1.000000', isShared: false },
  ])
})

test('behavior: shows the money withheld from a wallet that USDC has blacklisted', async () => {
  const { chain, served } = gateway
  const splitter = splitterAddress({
    provider: shop.wallet,
    platform: shop.wallet,
    providerShare: 1n,
    platformShare: 0n,
    factory: served.deployment.splitterFactory,
  })
  await chain.mintUsdc([splitter], 1_250_000n)
  await setBlacklisted(chain, shop.wallet, true)
  // A new process reads the wallet's state again; the first process still has the state from before the blacklisting.
  expect((await look(gateway.another())).withheld).toMatchObject([
    { wallet: shop.wallet, network: 'localhost', waiting_usdc: '1.250000' },
  ])
})

test('behavior: another provider’s key is refused', async () => {
  const { key } = await openShop(gateway.app)
  const { status } = await call(gateway.app, 'GET', `/providers/${shop.providerId}/attention`, { key })
  expect(status).toBe(403)
})
