import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { createLogger } from '@tollkeeper/runtime/log'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startChaosRpc } from '../test/support/chaosRpc.ts'
import { type CutProxy, startCutProxy } from '../test/support/cutProxy.ts'
import { call, signedBody } from '../test/support/gateway.ts'
import { useGateway, useShop } from '../test/support/useGateway.ts'
import type { App } from './http/app.ts'

const gateway = useGateway()
let proxy: CutProxy
let sql: Database
let app: App
const shop = useShop(gateway)
beforeAll(async () => {
  const url = new URL(gateway.databaseUrl)
  proxy = await startCutProxy(url.hostname, Number(url.port))
  url.hostname = '127.0.0.1'
  url.port = String(proxy.port)
  sql = openDatabase({ url: url.href, max: 3, applicationName: 'behind a proxy', silenceMs: 3_000 })
  app = gateway.withOptions({ sql, log: createLogger('test', 'silent') })
})
afterAll(async () => {
  await sql?.end({ timeout: 1 })
  await proxy?.close()
})

async function verify(): Promise<number> {
  const body = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
  return (await call(app, 'POST', '/verify', { json: body })).status
}

test('behavior: if connections to Postgres hang, /verify answers 503 at most once per connection, and then works again', async () => {
  expect(await verify()).toBe(200)
  proxy.abandon()
  const statuses = [await verify()]
  while (statuses.at(-1) !== 200) statuses.push(await verify())
  expect(statuses.slice(0, -1).every((status) => status === 503)).toBe(true)
  expect(statuses.length).toBeLessThanOrEqual(4)
})

test('behavior: after an outage, the next /verify works, regardless of the number of failures', async () => {
  proxy.cut()
  for (let i = 0; i < 8; i++) expect(await verify()).toBe(503)
  proxy.mend()
  expect(await verify()).toBe(200)
})

test('behavior: /readyz names the database while it is down', async () => {
  proxy.cut()
  const away = await call(app, 'GET', '/readyz')
  expect(away).toMatchObject({ status: 503, body: { status: 'unavailable' } })
  expect(away.body).toMatchObject({
    checks: expect.arrayContaining([expect.objectContaining({ name: 'database', ok: false })]),
  })
  proxy.mend()
  await expect.poll(async () => (await call(app, 'GET', '/readyz')).status).toBe(200)
})

test('behavior: a gateway that starts while its node is down answers 503, and works once the node is up', async () => {
  const { network, deployment } = gateway.served
  await using node = await startChaosRpc({ target: gateway.chain.url })
  node.always('*', 'refuse')
  const networks = await openServedNetworks([{ network, deployment, rpcUrls: [node.url] }], {
    onUnreachable: () => {},
  })
  const app = gateway.withOptions({ networks, log: createLogger('test', 'silent') })
  const verify = { json: await signedBody(gateway, shop, await gateway.buyer(1_000_000n)) }
  const address = '0x00000000000000000000000000000000000000ab'
  const register = { json: { network: network.name, address }, key: shop.key }
  const ask = async () => [
    await call(app, 'POST', '/verify', verify),
    await call(app, 'POST', `/providers/${shop.providerId}/wallets`, register),
  ]
  for (const away of await ask())
    expect(away).toMatchObject({ status: 503, body: { code: 'dependency_unavailable', dependency: 'rpc' } })
  node.heal()
  expect((await ask()).map(({ status }) => status)).toEqual([200, 201])
})
