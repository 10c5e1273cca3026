/** What every runtime runs as it is: a shop with two paid paths, one a plain handler and one of Hono, and a buyer. */
import { createClient, type NetworkName } from '@tollkeeper/sdk'
import { requirePayment } from '@tollkeeper/sdk/fetch'
import { requirePayment as requireHonoPayment } from '@tollkeeper/sdk/hono'
import { Hono } from 'hono'

/** Of the environment, or of a Worker's bindings. */
export type Variables = Record<
  'GATEWAY_URL' | 'PROVIDER_ID' | 'PROVIDER_API_KEY' | 'NETWORK' | 'WALLET_PRIVATE_KEY',
  string
>

/** @param rest what the runtime passes beside the request. */
export function createShop(
  variables: Variables,
): (request: Request, ...rest: unknown[]) => Promise<Response> {
  const { GATEWAY_URL: gatewayUrl, PROVIDER_ID: providerId, PROVIDER_API_KEY: apiKey } = variables
  // A loaded machine takes its time.
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
    maxPaymentUsdc: '0.01',
    timeout: 240_000,
  })
  const { data, receipt, paymentId } = await client.request(url)
  return { data, receipt, paymentId }
}
