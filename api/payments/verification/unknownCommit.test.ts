import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { createGate, type Gate } from '@tollkeeper/sdk/middleware/gate'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { listen, urlOf } from '../../../sdk/test/serve.ts'
import { type CutProxy, startCutProxy } from '../../../test/support/cutProxy.ts'
import { call, signedBody, type VerifyBody } from '../../../test/support/gateway.ts'
import { until } from '../../../test/support/until.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'
import type { App } from '../../http/app.ts'

// Postgres commits, and its answer is lost, so nobody knows whether the payment was accepted. Whoever pays is served or
// not charged.

/** The beginning of an array of rows that are payments: only the statement that stores them sends one. */
const storing = '{"(pay_'
const buyers = 10

const gateway = useGateway()
let proxy: CutProxy
let database: Database
let app: App
const shop = useShop(gateway, beforeEach)
beforeAll(async () => {
  const url = new URL(gateway.databaseUrl)
  proxy = await startCutProxy(url.hostname, Number(url.port))
  url.hostname = '127.0.0.1'
  url.port = String(proxy.port)
  database = openDatabase({ url: url.href, max: 4, applicationName: 'test' })
  app = gateway.withOptions({ sql: database })
})
beforeEach(() => proxy.mend())
afterAll(async () => {
  await database?.end({ timeout: 1 })
  await proxy?.close()
})

async function signAll(): Promise<VerifyBody[]> {
  const bodies: VerifyBody[] = []
  for (let n = 0; n < buyers; n++) {
    bodies.push(await signedBody(gateway, shop, await gateway.buyer(50_000n)))
  }
  return bodies
}

async function stored(): Promise<{ id: string; voided: boolean }[]> {
  return gateway.database<{ id: string; voided: boolean }[]>`
    select id, exists (select from outcome where payment_id = id and kind = 'voided') as voided from payment
    where provider_id = ${shop.providerId} order by id`
}

async function openGate(timeout: number): Promise<Gate> {
  const server = createAdaptorServer({ fetch: app.fetch }) as Server
  await listen(server)
  return createGate({
    gatewayUrl: urlOf(server),
    providerId: shop.providerId,
    endpointId: shop.endpointId,
    pricing: { usdcPerUnit: '0.05' },
    apiKey: shop.key,
    timeout,
  })
}

const present = (gate: Gate, body: VerifyBody, waitUntil?: (work: Promise<unknown>) => void) =>
  gate.check({ method: 'GET', url: shop.url, authorization: encodeAuthorizationHeader(body) }, waitUntil)

test('behavior: the gateway finds out by itself, and every buyer has its receipt', async () => {
  const bodies = await signAll()
  proxy.loseAnswersTo(storing, 1)
  const answers = await Promise.all(
    bodies.map((json) => call<{ paymentId: string }>(app, 'POST', '/verify', { json })),
  )
  expect(answers.map(({ status }) => status)).toEqual(Array(buyers).fill(200))
  const payments = await stored()
  expect(payments.map(({ id }) => id)).toEqual(answers.map(({ body }) => body.paymentId).sort())
  const totals = await gateway.database<{ total: bigint }[]>`
    select accepted_total as total from payer join payment on payment.payer = payer.address
    where provider_id = ${shop.providerId}`
  expect(totals.map(({ total }) => total)).toEqual(Array(buyers).fill(50_000n))
})

test('behavior: where the gateway does not find out, the middleware goes on until it knows, and serves', async () => {
  const bodies = await signAll()
  const gate = await openGate(60_000)
  proxy.loseAnswersTo(storing, 8)
  const decisions = await Promise.all(bodies.map((body) => present(gate, body)))
  expect(decisions.map(({ kind }) => kind)).toEqual(Array(buyers).fill('serve'))
  const paid = decisions.map((decision) => (decision.kind === 'serve' ? decision.payment.paymentId : ''))
  expect(await stored()).toEqual(paid.sort().map((id) => ({ id, voided: false })))
})

test('behavior: what stays unknown beyond the bound is not served, and voided as soon as it is known', async () => {
  const bodies = await signAll()
  // Long enough for a busy machine to store all of them.
  const gate = await openGate(4_000)
  proxy.loseAnswersTo(storing, Number.POSITIVE_INFINITY)
  const decisions = await Promise.all(bodies.map((body) => present(gate, body)))
  for (const decision of decisions) {
    expect(decision).toMatchObject({ kind: 'answer', answer: { status: 503 } })
  }
  proxy.mend()
  await until('all are stored', async () => (await stored()).length === buyers)
  await until('nobody is charged', async () => (await stored()).every(({ voided }) => voided))
})

test('behavior: Postgres stands still until the callers are gone: what reaches it then is not accepted', async () => {
  const bodies = await signAll()
  const [first, ...others] = bodies
  const verify = (json: VerifyBody | undefined) =>
    call<{ paymentId: string }>(app, 'POST', '/verify', { json, headers: { prefer: 'wait=1' } })
  expect((await verify(first)).status).toBe(200)
  proxy.stall()
  const gone = others.map(verify)
  // Their callers' time is over, by the clock that decides: the database's.
  await gateway.database`select pg_sleep(1.6)`
  proxy.mend()
  expect((await Promise.all(gone)).map(({ status }) => status)).toEqual(Array(buyers - 1).fill(503))
  expect(await stored()).toHaveLength(1)
  const totals = await gateway.database<{ total: bigint }[]>`
    select accepted_total as total from payer where address = any(${others.map(({ payloads }) => payloads[0].slice(0, 42))})`
  expect(totals.filter(({ total }) => total !== 0n)).toEqual([])
  // The same request is stored if it comes in time.
  expect((await verify(others[0])).status).toBe(200)
})

test('behavior: charged and not served is nobody, whose middleware gave up while Postgres stood still', async () => {
  const bodies = await signAll()
  const gate = await openGate(2_000)
  await present(gate, await signedBody(gateway, shop, await gateway.buyer(50_000n)))
  proxy.stall()
  const asking: Promise<unknown>[] = []
  const decisions = await Promise.all(bodies.map((body) => present(gate, body, (work) => asking.push(work))))
  for (const decision of decisions)
    expect(decision).toMatchObject({ kind: 'answer', answer: { status: 503 } })
  // The gateway counts from when it was asked, which on a busy machine is later.
  await gateway.database`select pg_sleep(1)`
  proxy.mend()
  // The middleware asks about each, and nothing is accepted by that.
  await Promise.all(asking)
  expect(asking).toHaveLength(buyers)
  expect(await stored()).toMatchObject([{ voided: false }])
})
