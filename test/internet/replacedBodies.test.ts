import { createServer } from 'node:http'
import { createClient } from '@tollkeeper/sdk/client/createClient'
import { wrapFetch } from '@tollkeeper/sdk/client/wrapFetch'
import { expect, test } from 'vitest'
import { listen, useSellers } from './sellers.ts'

// A CDN that replaces the body of an error response with its own page, but keeps the headers.

const sellers = useSellers()

test.each([
  ['on a tab', true, '0.05'],
  ['by a single payment', false, '0.05'],
  ['on a tab, for a price that is sold only on tabs', true, '0.001'],
])(
  'behavior: if a CDN has replaced the body of a 402, the client reads the price from the header and pays %s',
  async (_, tabs, usdcPerUnit) => {
    let shop = ''
    const origin = await listen(
      createServer(async (request, response) => {
        const headers = { accept: '*/*', ...(request.headers as Record<string, string>) }
        const answer = await fetch(shop + request.url, { headers })
        const passed = Object.fromEntries(
          [...answer.headers].filter(([name]) => !/^(?:content|transfer)/.test(name)),
        )
        const body = answer.status === 402 ? '<h1>Payment Required</h1>' : await answer.text()
        response.writeHead(answer.status, { ...passed, 'content-type': 'text/html' }).end(body)
      }),
    )
    const seller = await sellers.open('hono', {
      usdcPerUnit,
      publicOrigin: origin,
      gate: { publicUrl: origin },
    })
    shop = seller.url
    const options = {
      gatewayUrl: sellers.state.url,
      network: 'localhost',
      account: await sellers.gateway.buyer(1_000_000n),
      usdcAddress: sellers.gateway.served.token,
      limits: { perPayment: '1' },
      tabs,
    } as const
    expect((await createClient(options).request(`${origin}/weather`)).paymentId).toMatch(/^pay_/)
    const response = await wrapFetch(fetch, options)(`${origin}/weather`)
    expect([response.status, response.headers.has('service-receipt')]).toEqual([200, true])
    expect(seller.served).toHaveLength(2)
  },
)
