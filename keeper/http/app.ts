import { answerDiscovery, discoveryNames } from '@tollkeeper/ledger/discovery/answers'
import type { Catalogue } from '@tollkeeper/ledger/discovery/catalogue'
import { allowBrowsers } from '@tollkeeper/runtime/allowBrowsers'
import { clientAddress } from '@tollkeeper/runtime/clientAddress'
import { limitBody } from '@tollkeeper/runtime/limitBody'
import { refuseOtherMethods } from '@tollkeeper/runtime/refuseOtherMethods'
import { traceRequests } from '@tollkeeper/runtime/traceRequests'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Hono } from 'hono'
import type { HttpContext } from './context.ts'
import { createFacilitator } from './facilitator/routes.ts'
import { keyPath } from './keyPath.ts'
import { describeFacilitator } from './openapi.ts'
import { createOperationsApp, type OperationsOptions } from './operations.ts'
import { watchConnection } from './settleNow/connection.ts'
import { submitTransfers } from './submit.ts'
import { countRequest } from './submitRules.ts'

/** Maximum length of a request body in bytes. A body of 344 transfers fits, even if each has the longest signature. */
const mostBytes = 1_000_000
/** Maximum discovery requests per minute from one address. */
const discoveriesAMinute = 300

/**
 * Creates the keeper's HTTP application: the facilitator, and the routes for operators and their probes.
 *
 * @param catalogue null if this keeper lists no resources
 */
export function createApp(
  context: HttpContext,
  catalogue: Catalogue | null,
  operations: Omit<OperationsOptions, 'rateLimiter' | 'trustedProxies'>,
): Hono {
  const { rateLimiter, trustedProxies, tracer } = context
  const app = createOperationsApp({ ...operations, rateLimiter, trustedProxies })

  // Pages of any origin may call this route, because buyers pay from the pages of many sites. A list of allowed origins would protect nothing:
  // without CORS, any page can still POST plain text.
  app.use('/submit', allowBrowsers(['POST']))
  app.post('/submit', limitBody(mostBytes), async (c) => {
    const connection = watchConnection(c)
    const text = await c.req.text()
    const header = c.req.header('authorization')
    const apiKey = header === undefined ? null : (/^Bearer (\S+)$/i.exec(header)?.[1] ?? '')
    const caller = { apiKey, address: clientAddress(c, trustedProxies) }
    return c.json(await submitTransfers(context, parseJson(text), caller, connection))
  })

  const traced = ['', keyPath].flatMap((prefix) => [`${prefix}/verify`, `${prefix}/settle`])
  if (tracer) for (const route of traced) app.use(route, traceRequests(tracer, route))
  app.route('/', createFacilitator(context))
  const description = describeFacilitator(catalogue !== null)
  app.use('/openapi.json', allowBrowsers(['GET']))
  app.get('/openapi.json', (c) => c.json(description))
  if (catalogue) {
    // x402 clients call these routes of a facilitator to find resources whose payments the facilitator settles.
    app.use('/discovery/*', allowBrowsers(['GET']))
    for (const name of discoveryNames)
      app.get(`/discovery/${name}`, async (c) => {
        const key = `discovery:${clientAddress(c, trustedProxies)}`
        countRequest(rateLimiter, key, discoveriesAMinute, 'requests', 'from one address')
        const json = await answerDiscovery(catalogue, name, c.req.query())
        return c.body(json, 200, { 'Content-Type': 'application/json' })
      })
  }
  refuseOtherMethods(app)
  return app
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new BaseError('invalid_json', undefined, { cause: error })
  }
}
