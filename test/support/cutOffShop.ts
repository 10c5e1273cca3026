import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import type { App } from '@tollkeeper/api/http/app'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { createGate, type Gate } from '@tollkeeper/sdk/middleware/gate'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { afterAll, beforeAll, beforeEach } from 'vitest'
import { listen, urlOf } from '../../sdk/test/serve.ts'
import { type CutProxy, startCutProxy } from './cutProxy.ts'
import { type Shop, signedBody, type TestGateway, type VerifyBody } from './gateway.ts'
import { useGateway, useShop } from './useGateway.ts'

export type CutOffShop = {
  gateway: TestGateway
  shop: Shop
  /** The proxy between the gateway and Postgres. Each test starts with working connections. */
  proxy: CutProxy
  app: App
  /** Signs one payment for each of `buyers` new buyers. */
  signAll: (buyers: number) => Promise<VerifyBody[]>
  /** Returns the shop's payments in the database. */
  stored: () => Promise<{ id: string; voided: boolean }[]>
  /** Opens the shop's middleware. */
  openGate: (timeout: number) => Promise<Gate>
  /** Presents a payment to the middleware. */
  present: (
    gate: Gate,
    body: VerifyBody,
    waitUntil?: (work: Promise<unknown>) => void,
  ) => ReturnType<Gate['check']>
}

/**
 * Opens a new shop for each test of a file. The connections of its gateway to Postgres can be cut, stalled, or lose responses.
 */
export function useCutOffShop(): CutOffShop {
  const gateway = useGateway()
  const shop = useShop(gateway, beforeEach)
  let database: Database
  const parts = {} as Pick<CutOffShop, 'proxy' | 'app'>
  beforeAll(async () => {
    const url = new URL(gateway.databaseUrl)
    parts.proxy = await startCutProxy(url.hostname, Number(url.port))
    url.hostname = '127.0.0.1'
    url.port = String(parts.proxy.port)
    database = openDatabase({ url: url.href, max: 4, applicationName: 'test' })
    parts.app = gateway.withOptions({ sql: database })
  })
  beforeEach(() => parts.proxy.mend())
  afterAll(async () => {
    await database?.end({ timeout: 1 })
    await parts.proxy?.close()
  })
  return Object.assign(parts, {
    gateway,
    shop,
    async signAll(buyers: number) {
      const bodies: VerifyBody[] = []
      for (let n = 0; n < buyers; n++) {
        bodies.push(await signedBody(gateway, shop, await gateway.buyer(50_000n)))
      }
      return bodies
    },
    stored: async () =>
      gateway.database<{ id: string; voided: boolean }[]>`
        select id, exists (select from payment_result where payment_id = id and kind = 'voided') as voided from payment
        where provider_id = ${shop.providerId} order by id`,
    async openGate(timeout: number) {
      const server = createAdaptorServer({ fetch: parts.app.fetch }) as Server
      await listen(server)
      return createGate({
        gatewayUrl: urlOf(server),
        providerId: shop.providerId,
        endpointId: shop.endpointId,
        pricing: { usdcPerUnit: '0.05' },
        apiKey: shop.key,
        timeout,
      })
    },
    present: (gate: Gate, body: VerifyBody, waitUntil?: (work: Promise<unknown>) => void) =>
      gate.check({ method: 'GET', url: shop.url, authorization: encodeAuthorizationHeader(body) }, waitUntil),
  })
}
