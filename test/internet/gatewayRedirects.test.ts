import { createServer } from 'node:http'
import type { App } from '@tollkeeper/api/http/app'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { createGate } from '@tollkeeper/sdk/middleware/gate'
import { repeatPaid } from '@tollkeeper/sdk/x402/repeatPaid'
import { keepTabs } from '@tollkeeper/sdk/x402/tabEvmScheme'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { wrapFetchWithPayment } from '@x402/fetch'
import { describe, expect, onTestFinished, test } from 'vitest'
import { listen, useSellers } from './sellers.ts'

// A gateway whose address redirects, after a move or because of a DNS mistake. Payments, tabs, signatures and
// keys must stay at its origin.

const sellers = useSellers()
const { payment } = sellers

describe('a gateway that redirects to another origin', () => {
  /** Makes the gateway answer requests with a redirect. @returns the requests that arrived at its target. */
  async function redirectGateway(status = 307, isRedirected = (_path: string) => true) {
    const seen: string[] = []
    const elsewhere = await listen(
      createServer((request, response) => {
        seen.push(`${request.method} ${request.url}`)
        response.setHeader('content-type', 'application/json').end('{}')
      }),
    )
    const headers = { location: `${elsewhere}/there` }
    const { app } = sellers.state
    sellers.state.app = {
      fetch: (request: Request) =>
        isRedirected(new URL(request.url).pathname)
          ? new Response(null, { status, headers })
          : app.fetch(request),
    } as unknown as App
    onTestFinished(() => sellers.restart())
    return seen
  }

  const refusal = expect.objectContaining({
    code: 'network_error',
    cause: expect.objectContaining({ message: expect.stringContaining('which is not followed') }),
  })

  test.each([
    ['reading the tab', 302, /\/tabs\/[^/]+$/],
    ['closing the tab', 307, /\/close$/],
    ['closing the tab', 308, /\/close$/],
  ])(
    'error: close() does not send the tab to a redirect’s target if the request for %s is answered with %d',
    async (_, status, path) => {
      const seller = await sellers.open('hono')
      const client = createClient({ ...(await payment(true)), baseUrl: seller.url })
      await client.request('/weather')
      const seen = await redirectGateway(status, (asked) => path.test(asked))
      // close() reports one error for each tab that it can't close.
      const error: unknown = await client.close().catch((thrown: unknown) => thrown)
      expect(error instanceof AggregateError ? error.errors[0] : error).toEqual(refusal)
      expect(seen).toEqual([])
    },
  )

  test('error: the scheme for x402’s clients does not send the tab to a redirect’s target', async () => {
    const seller = await sellers.open('hono')
    const { account, gatewayUrl, usdcAddress } = await payment(true)
    const client = new x402Client().register('eip155:*', new ExactEvmScheme(account))
    const kept = keepTabs(client, account, { gatewayUrl, usdcAddress })
    await wrapFetchWithPayment(repeatPaid(fetch), client)(`${seller.url}/weather`)
    const seen = await redirectGateway()
    await kept.close().catch(() => {})
    expect(seen).toEqual([])
  })

  test('error: settleNow() sends no signature to a redirect’s target, and waitForSettlement() no request', async () => {
    const seller = await sellers.open('hono')
    const { url } = sellers.state
    const client = createClient({ ...(await payment(false)), baseUrl: seller.url, facilitatorUrl: url })
    const { payment: paid, paymentId } = await client.request('/weather')
    if (!paid || !paymentId) throw new Error('it was not paid')
    const seen = await redirectGateway()
    await expect(client.settleNow(paid)).rejects.toEqual(refusal)
    const wait = client.waitForSettlement(paymentId, { timeoutMs: 300, pollingInterval: 50 })
    await expect(wait).rejects.toMatchObject({ code: 'timeout' })
    expect(seen).toEqual([])
  })

  test('error: a buyer’s query about a request on its tab sends no signature to a redirect’s target', async () => {
    const seller = await sellers.open('hono', { handler: () => Response.json({}, { status: 500 }) })
    const { fetch } = globalThis
    let seen: string[] | undefined
    const redirecting: typeof fetch = async (input, init) => {
      // The gateway redirects only from this query on. Before, it verifies the request normally.
      if (new Headers(init?.headers).has('tab-signature')) seen ??= await redirectGateway()
      return fetch(input, init)
    }
    const client = createClient({ ...(await payment(true)), baseUrl: seller.url, fetch: redirecting })
    await expect(client.request('/weather')).rejects.toMatchObject({ outcome: 'unknown' })
    expect(seen).toEqual([])
  })

  test('error: the middleware sends neither payment nor key to a redirect’s target', async () => {
    const seen = await redirectGateway()
    const options = { providerId: `prov_${'1'.repeat(32)}`, apiKey: 'tk_1', timeout: 500, warn: () => {} }
    const gate = createGate({ ...options, gatewayUrl: sellers.state.url })
    const decision = await gate.check({ method: 'GET', url: 'https://seller.example/weather' })
    expect(decision).toMatchObject({ kind: 'answer', answer: { status: 503 } })
    expect(seen).toEqual([])
  })

  test('behavior: follows a redirect within the origin', async () => {
    const seller = await sellers.open('hono')
    const client = createClient({ ...(await payment(true)), baseUrl: seller.url })
    await client.request('/weather')
    const { app } = sellers.state
    const moved: string[] = []
    sellers.state.app = {
      fetch: (request: Request) => {
        const { pathname } = new URL(request.url)
        if (pathname.startsWith('/moved'))
          return app.fetch(new Request(request.url.replace('/moved', ''), request))
        moved.push(pathname)
        return new Response(null, { status: 308, headers: { location: `/moved${pathname}` } })
      },
    } as unknown as App
    onTestFinished(() => sellers.restart())
    await client.close()
    expect(moved).toContainEqual(expect.stringMatching(/\/close$/))
    expect(await client.tabs()).toEqual([])
  })
})
