import { changeSales, listSalesChanges } from '@tollkeeper/ledger/registry/salesStop'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { createGate } from '@tollkeeper/sdk/middleware/gate'
import { afterEach, expect, test } from 'vitest'
import { call, signedBody, type TestGateway } from '../../test/support/gateway.ts'
import { openTab } from '../../test/support/tabBuyer.ts'
import { useGateway, useShop } from '../../test/support/useGateway.ts'
import { createApiMetrics } from '../http/metrics.ts'
import { newOperatorKey } from '../http/operator.ts'
import { collectApiState } from '../stateMetrics.ts'

// The operator's stop switch. Each app stands for one process, which sees a change within a second. `fresh()` is a process that has nothing cached.

const operator = newOperatorKey()
const gateway = useGateway({ operatorKeyHashes: [Buffer.from(operator.hash, 'hex')] })
const shop = useShop(gateway)
const fresh = () => gateway.another()
/** The gateway through a new process that has read nothing yet. The usual process may have cached the switch of the previous test. */
const open = (): TestGateway => Object.create(gateway, { app: { value: fresh() } })

const change = (isStopped: boolean, reason = '') =>
  changeSales(gateway.database, { isStopped, reason, changedBy: 'a test' })
afterEach(() => change(false))

const stopped = { status: 503, body: { code: 'sales_stopped' } }
const verify = (json: unknown, app = fresh(), headers: Record<string, string> = {}) =>
  call<{ code?: string; paymentId?: string }>(app, 'POST', '/verify', { json, headers })
const countPayments = async () => {
  const [row] = await gateway.database<[{ count: number }]>`select count(*)::int as count from payment`
  return row.count
}

test('error: refuses challenges and payments with the reason, and stores nothing', async () => {
  const payer = await gateway.buyer(1_000_000n)
  const json = await signedBody(open(), shop, payer)
  await change(true, 'Maintenance until 14:00')
  const before = await countPayments()
  const { providerId, endpointId } = shop
  const app = fresh()
  const refusal = {
    status: 503,
    body: {
      code: 'sales_stopped',
      detail: 'The operator has stopped sales: Maintenance until 14:00. Nothing was charged',
      reason: 'Maintenance until 14:00',
      stopped_at: expect.any(String),
    },
  }
  expect(await call(app, 'POST', '/challenge', { json: { providerId, endpointId } })).toMatchObject(refusal)
  expect(
    await call(app, 'GET', `/challenge?providerId=${providerId}&endpointId=${endpointId}`),
  ).toMatchObject(refusal)
  expect(await verify(json, app)).toMatchObject(refusal)
  expect(await countPayments()).toBe(before)

  await change(false)
  expect((await verify(json)).status).toBe(200)
})

test('error: if a process has not seen the stop yet, the database refuses its payments, and nothing is stored', async () => {
  const payer = await gateway.buyer(1_000_000n)
  const [first, second] = [await signedBody(open(), shop, payer), await signedBody(open(), shop, payer)]
  const app = fresh()
  expect((await verify(first, app)).status).toBe(200)
  await change(true)
  const before = await countPayments()
  expect(await verify(second, app)).toMatchObject(stopped)
  expect(await countPayments()).toBe(before)
  const [row] = await gateway.database<[{ total: bigint }]>`
    select accepted_total as total from payer where address = ${payer.address.toLowerCase()}`
  expect(row.total).toBe(50_000n)
})

test('behavior: if the operator stops sales while payments are being verified, each payment is either accepted and queued, or refused and not stored', async () => {
  const buyers = await Promise.all(Array.from({ length: 24 }, () => gateway.buyer(50_000n)))
  const bodies = await Promise.all(buyers.map((buyer) => signedBody(open(), shop, buyer)))
  const apps = [fresh(), fresh()]
  const answers = await Promise.all(
    bodies.map(async (json, i) => {
      if (i === 8) await change(true)
      return verify(json, apps[i % 2])
    }),
  )
  for (const [i, { status, body }] of answers.entries()) {
    const stored = await gateway.database<{ id: string; stage: string | null }[]>`
      select p.id, q.stage from payment p left join queue q on q.payment_id = p.id
      where p.payer = ${buyers[i]?.address.toLowerCase() ?? ''}`
    if (status === 200) expect([...stored]).toEqual([{ id: body.paymentId, stage: 'waiting' }])
    else expect([body.code, stored.length]).toEqual(['sales_stopped', 0])
  }
  expect(answers.filter(({ status }) => status === 503).length).toBeGreaterThan(0)
})

test('behavior: a payment accepted before the stop gets its answer again, and its receipt stays readable', async () => {
  const payer = await gateway.buyer(1_000_000n)
  const json = await signedBody(open(), shop, payer)
  const headers = { 'idempotency-key': 'one' }
  const first = await verify(json, fresh(), headers)
  await change(true)
  const again = await verify(json, fresh(), headers)
  expect([again.status, again.body.paymentId]).toEqual([200, first.body.paymentId])
  expect(await verify(json)).toMatchObject({ status: 409, body: { code: 'payment_replayed' } })
  expect((await call(fresh(), 'GET', `/receipts/${first.body.paymentId}`)).status).toBe(200)
  const own = await call(fresh(), 'POST', `/payments/${first.body.paymentId}/void`, { key: shop.key })
  expect(own.status).toBe(200)
})

test('behavior: on an open tab, further purchases are refused and an earlier purchase gets its answer again; the tab can be closed', async () => {
  const tab = openTab(open(), await gateway.buyer(5_000_000n))
  const [first, second] = [await tab.sign(shop), await tab.sign(shop)]
  const other = await openTab(open(), await gateway.buyer(5_000_000n)).sign(shop)
  expect((await tab.present(first, { key: 'one' })).status).toBe(200)
  await change(true, 'Moving')
  const app = fresh()
  expect(await tab.present(second, { app })).toMatchObject(stopped)
  expect(await tab.present(other, { app })).toMatchObject(stopped)
  expect((await tab.present(first, { app, key: 'one' })).status).toBe(200)
  const [{ requests }] = await gateway.database<[{ requests: number }]>`
    select requests::int from tabs.tab where id = ${Buffer.from(tab.tabId.slice(4), 'hex')}`
  expect(requests).toBe(1)
  expect((await tab.close()).status).toBe(200)
})

test('behavior: the middleware passes the refusal on, and our client signs and pays nothing', async () => {
  await change(true, 'Moving')
  const app = fresh()
  const gate = createGate({
    gatewayUrl: gateway.settings.issuer,
    providerId: shop.providerId,
    pricing: { usdcPerUnit: '0.05' },
    fetch: (url, init) => app.request(String(url), init) as Promise<Response>,
  } as Parameters<typeof createGate>[0])
  let asked = 0
  const sell: typeof fetch = async (url, init) => {
    asked += 1
    const headers = new Headers(init?.headers)
    const decision = await gate.check({
      method: 'GET',
      url: String(url),
      authorization: headers.get('authorization'),
    })
    if (decision.kind !== 'answer') throw new Error('it was served')
    const { status, headers: answered, body } = decision.answer
    return new Response(body, { status, headers: answered })
  }
  const client = createClient({
    gatewayUrl: gateway.settings.issuer,
    network: 'localhost',
    account: await gateway.buyer(1_000_000n),
    usdcAddress: gateway.served.token,
    fetch: sell,
  })
  const before = await countPayments()
  await expect(client.request(shop.url)).rejects.toMatchObject({ status: 503, code: 'sales_stopped' })
  expect(asked).toBe(1)
  expect(await countPayments()).toBe(before)
})

test('behavior: the stop is shown in every view, and the gateway stays ready', async () => {
  const open = { stopped: false, reason: null, stoppedAt: null }
  const views = async () => {
    const app = fresh()
    const home = await call(app, 'GET', '/')
    const ready = await call(app, 'GET', '/readyz')
    const networks = await call(app, 'GET', '/networks')
    const operation = await call(app, 'GET', '/operator/operation', { key: operator.key })
    expect([home.status, ready.status, networks.status, operation.status]).toEqual([200, 200, 200, 200])
    return [home, ready, networks, operation].map(({ body }) => body.sales)
  }
  const metric = async () => {
    const metrics = createApiMetrics()
    collectApiState(metrics, {
      sql: gateway.database,
      tabDatabase: {} as never,
      networks: [],
      tabBudget: null,
      issuer: gateway.settings.issuer,
    })
    const read = await metrics.registry.getSingleMetric('tollkeeper_sales_stopped')?.get()
    return read?.values.map(({ value }) => value)
  }
  expect(await views()).toEqual([open, open, open, open])
  expect(await metric()).toEqual([0])
  await change(true, 'Moving')
  const [last] = await listSalesChanges(gateway.database, 1)
  const state = { stopped: true, reason: 'Moving', stoppedAt: last?.changedAt.toISOString() }
  expect(await views()).toEqual([state, state, state, state])
  expect(await metric()).toEqual([1])
})
