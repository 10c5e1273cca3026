import { type Client, type ClientOptions, createClient } from '@tollkeeper/sdk/client/createClient'
import { createGate, type Gate, type InnerGateOptions } from '@tollkeeper/sdk/middleware/gate'
import type { PaymentVariables } from '@tollkeeper/sdk/middleware/hono'
import { passGate } from '@tollkeeper/sdk/middleware/honoGate'
import type { PassOption } from '@tollkeeper/sdk/middleware/passOption'
import { Hono } from 'hono'
import type { PrivateKeyAccount } from 'viem/accounts'
import { gatewayIssuer, type Shop, type TestGateway } from './gateway.ts'

/** A seller of passes behind the real middleware, and its buyers, on a gateway without a server. */
export type PassShop = {
  gate: Gate
  /** The buyers' `fetch`, which reaches the seller and the gateway. */
  fetch: typeof globalThis.fetch
  /** Requests of the seller's middleware to the gateway, such as `POST /verify`. */
  asked: string[]
  /** Number of times that the handler ran. */
  served: () => number
  /** Makes the next requests fail with this status. */
  answerWith: (status: number) => void
  /** Makes the gateway unreachable for the seller, or reachable again. */
  setAway: (isAway: boolean) => void
  buyer: (account: PrivateKeyAccount, options?: Partial<ClientOptions>) => Client
}

export function openPassShop(
  gateway: TestGateway,
  shop: Shop,
  pass: PassOption | undefined,
  options: Partial<InnerGateOptions> = {},
): PassShop {
  const asked: string[] = []
  let [served, status, isAway] = [0, 200, false]
  const { origin } = new URL(shop.url)
  const gate = createGate({
    gatewayUrl: gatewayIssuer,
    providerId: shop.providerId,
    apiKey: shop.key,
    pricing: { usdcPerUnit: '0.05', ...(pass !== undefined && { pass }) },
    timeout: 5_000,
    warn: () => {},
    ...options,
    fetch: async (url, init) => {
      const { pathname } = new URL(url)
      asked.push(`${init.method ?? 'GET'} ${pathname}`)
      if (isAway) throw Object.assign(new TypeError('fetch failed'), { cause: { code: 'ECONNREFUSED' } })
      return gateway.app.request(url, init)
    },
  })
  const app = new Hono<{ Variables: PaymentVariables }>()
  app.all(
    '*',
    (c, next) => passGate(gate, c, next),
    (c) => {
      served++
      return c.json(c.get('payment'), status as 200)
    },
  )
  const fetch: PassShop['fetch'] = async (input, init) => {
    const request = new Request(input, init)
    return new URL(request.url).origin === origin ? app.fetch(request) : gateway.app.fetch(request)
  }
  return {
    gate,
    fetch,
    asked,
    served: () => served,
    answerWith: (next) => {
      status = next
    },
    setAway: (next) => {
      isAway = next
    },
    buyer: (account, more = {}) =>
      createClient({
        gatewayUrl: gatewayIssuer,
        network: 'localhost',
        account,
        usdcAddress: gateway.served.token,
        limits: { perPayment: '1' },
        fetch,
        ...more,
      }),
  }
}
