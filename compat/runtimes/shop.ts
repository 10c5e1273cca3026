/** Runs unchanged in every runtime: a buyer, and a shop with two paid paths, one with a plain handler and one with Hono. */
import { createClient, type NetworkName } from '@tollkeeper/sdk'
import { requirePayment } from '@tollkeeper/sdk/fetch'
import { requirePayment as requireHonoPayment } from '@tollkeeper/sdk/hono'
import { Hono } from 'hono'

/** Settings from the environment or from a Worker's bindings. */
export type Variables = Record<
  'GATEWAY_URL' | 'PROVIDER_ID' | 'PROVIDER_API_KEY' | 'NETWORK' | 'WALLET_PRIVATE_KEY',
  string
>

/** @param rest the arguments that the runtime passes in addition to the request. */
export function createShop(
  variables: Variables,
): (request: Request, ...rest: unknown[]) => Promise<Response> {
  const { GATEWAY_URL: gatewayUrl, PROVIDER_ID: providerId, PROVIDER_API_KEY: apiKey } = variables
  // The timeout is long, because the machine may be busy.
  const options = { gatewayUrl, providerId, apiKey, pricing: { usdcPerUnit: '0.01' }, timeout: 60_000 }
  const paid = requirePayment(options)
  const plain = paid((_request, { paymentId }) => Response.json({ by: 'fetch', paymentId }))
  const failing = paid((_request, { paymentId }) => Response.json({ paymentId }, { status: 500 }))
  const hono = new Hono().get('/hono', requireHonoPayment(options), (c) =>
    c.json({ by: 'hono', paymentId: c.get('payment').paymentId }),
  )
  return async (request, ...rest) => {
    const { pathname } = new URL(request.url)
    if (pathname === '/fetch') return plain(request)
    if (pathname === '/failing') return failing(request)
    return hono.fetch(request, ...(rest as []))
  }
}

export async function buy(url: string, variables: Variables) {
  const client = createClient({
    gatewayUrl: variables.GATEWAY_URL,
    network: variables.NETWORK as NetworkName,
    walletPrivateKey: variables.WALLET_PRIVATE_KEY,
    limits: { perPayment: '0.01' },
    timeout: 240_000,
  })
  const { data, receipt, paymentId } = await client.request(url)
  return { data, receipt, paymentId }
}
