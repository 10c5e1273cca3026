import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { type PaymentVariables, requirePayment } from '@tollkeeper/sdk/middleware/hono'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { Hono } from 'hono'
import type { Address } from 'viem'
import { registerProvider } from '../stack/registerProvider.ts'

export type DemoProvider = {
  name: string
  /** The wallet that is paid; undefined in mock mode. */
  address: Address | undefined
  /** URL of the resource that has a price. */
  url: string
  close: () => Promise<void>
}

/** Starts a provider's API as a provider would write it: registered at the gateway, with one route behind the middleware. */
export async function openProvider(options: {
  gatewayUrl: string
  name: string
  network: NetworkName
  address: Address
  price: bigint
}): Promise<DemoProvider> {
  const { gatewayUrl, name, network, address } = options
  const usdcPerUnit = formatUsdc(options.price)
  const port = await reservePort()
  const url = `http://${loopback}:${port}/data`
  const { providerId, apiKey } = await registerProvider({
    gatewayUrl,
    name,
    network,
    address,
    endpoints: [{ url, usdcPerUnit }],
  })
  const protect = requirePayment({ gatewayUrl, providerId, apiKey, pricing: { usdcPerUnit } })
  return { name, address, url, ...(await listen(port, protect)) }
}

/**
 * Starts a provider in mock mode. Nothing listens at its gateway URL, so requests would fail if mock mode called a gateway, which
 * it must not do.
 */
export async function openMockProvider(): Promise<DemoProvider & { gatewayUrl: string }> {
  const gatewayUrl = `http://${loopback}:${await reservePort()}`
  const port = await reservePort()
  const protect = requirePayment({
    gatewayUrl,
    providerId: 'prov_mock',
    pricing: { usdcPerUnit: '0.01' },
    mockPayments: true,
  })
  const url = `http://${loopback}:${port}/data`
  return { name: 'Mock', address: undefined, url, gatewayUrl, ...(await listen(port, protect)) }
}

async function listen(port: number, protect: ReturnType<typeof requirePayment>) {
  const app = new Hono<{ Variables: PaymentVariables }>()
  app.get('/data', protect, (c) => c.json({ answer: 42, paymentId: c.get('payment').paymentId }))
  const server = serve({ fetch: app.fetch, port, hostname: loopback }) as Server
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
