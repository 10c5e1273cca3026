import type { Hono } from 'hono'
import type { Catalogue } from '#ledger/discovery/catalogue'
import { allowBrowsers } from '#process/allowBrowsers'
import { clientAddress } from '#process/clientAddress'
import { limitBody } from '#process/limitBody'
import { refuseOtherMethods } from '#process/refuseOtherMethods'
import type { Tracer } from '#process/trace'
import { traceRequests } from '#process/traceRequests'
import { BaseError } from '#protocol/errors'
import { createDiscovery } from './discovery.ts'
import { createFacilitator, type FacilitatorDependencies } from './facilitator/routes.ts'
import { keyPath } from './keyPath.ts'
import { describeFacilitator } from './openapi.ts'
import { createOperationsApp, type OperationsOptions } from './operations.ts'
import { type SubmitDependencies, submitTransfers } from './submit.ts'

export type AppDependencies = OperationsOptions & {
  submit: SubmitDependencies
  facilitator: FacilitatorDependencies
  /** Null: nothing is traced. */
  tracer: Tracer | null
  /** Null: nothing is listed here. */
  catalogue: Catalogue | null
}

/** Longest body: 344 transfers with the longest signature each. */
const mostBytes = 1_000_000

/** The keeper's HTTP side: the facilitator, and the routes of operators and their probes. */
export function createApp({ submit, facilitator, tracer, catalogue, ...operations }: AppDependencies): Hono {
  const { rateLimiter, trustedProxies } = operations
  const app = createOperationsApp(operations)

  // A buyer's page may have any origin. CORS gives pages nothing new: they can POST plain text without it.
  app.use('/submit', allowBrowsers(['POST']))
  app.post('/submit', limitBody(mostBytes), async (c) => {
    const text = await c.req.text()
    const header = c.req.header('authorization')
    const apiKey = header === undefined ? null : (/^Bearer (\S+)$/i.exec(header)?.[1] ?? '')
    const caller = { apiKey, address: clientAddress(c, trustedProxies) }
    return c.json(await submitTransfers(submit, parseJson(text), caller))
  })

  const traced = ['', keyPath].flatMap((prefix) => [`${prefix}/verify`, `${prefix}/settle`])
  if (tracer) for (const route of traced) app.use(route, traceRequests(tracer, route))
  app.route('/', createFacilitator(facilitator, { rateLimiter, trustedProxies }))
  const description = describeFacilitator(catalogue !== null)
  app.use('/openapi.json', allowBrowsers(['GET']))
  app.get('/openapi.json', (c) => c.json(description))
  if (catalogue) app.route('/', createDiscovery(catalogue, { rateLimiter, trustedProxies }))
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
