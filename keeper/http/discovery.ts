import { Hono } from 'hono'
import { discoveryAnswers } from '#ledger/discovery/answers'
import type { Catalogue } from '#ledger/discovery/catalogue'
import { allowBrowsers } from '#process/allowBrowsers'
import { clientAddress } from '#process/clientAddress'
import type { RateLimiter } from '#process/rateLimiter'
import { countRequest } from './submitRules.ts'

/** Requests a minute from one address. */
const perAddress = 300

/** How x402's clients find what a facilitator settles: `GET /discovery/resources`, `/search` and `/merchant`. */
export function createDiscovery(
  catalogue: Catalogue,
  { rateLimiter, trustedProxies }: { rateLimiter: RateLimiter; trustedProxies: number },
): Hono {
  const app = new Hono()
  app.use('/discovery/*', allowBrowsers(['GET']))
  for (const [name, answer] of Object.entries(discoveryAnswers)) {
    app.get(`/discovery/${name}`, async (c) => {
      const key = `discovery:${clientAddress(c, trustedProxies)}`
      countRequest(rateLimiter, key, perAddress, 'requests', 'from one address')
      return c.json(await answer(catalogue, c.req.query()))
    })
  }
  return app
}
