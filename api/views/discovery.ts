import { z } from '@hono/zod-openapi'
import { answerDiscovery, maxDiscoveryLimit } from '@tollkeeper/ledger/discovery/answers'
import type { Catalogue } from '@tollkeeper/ledger/discovery/catalogue'
import type { Listing } from '@tollkeeper/ledger/discovery/listings'
import type { Database } from '@tollkeeper/ledger/store/database'
import type { Context } from 'hono'
import { answerJson } from '../http/answerJson.ts'
import type { App } from '../http/app.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import type { GatewaySettings } from '../http/settings.ts'
import * as wire from '../http/wire.ts'
import { findProvider } from '../registry/providers.ts'
import { describeSales, maxShown, type Sales, type SalesOptions } from './describeSales.ts'

const accepts = z.object({
  scheme: z.enum(['exact', 'tab']),
  network: z.string().openapi({ example: 'eip155:8453' }),
  asset: wire.addressOut,
  amount: wire.baseUnits.optional(),
  maxAmountRequired: wire.baseUnits.optional().openapi({ description: 'Only for resources of x402 v1' }),
  payTo: wire.addressOut,
  maxTimeoutSeconds: z.int(),
  extra: z.object({
    name: z.string(),
    version: z.string(),
    seller: wire.addressOut
      .optional()
      .openapi({ description: 'If `payTo` is a splitter: the seller that it pays' }),
  }),
})

const quality = z
  .object({
    l30DaysTotalCalls: z.int().openapi({ description: 'Number of payments that settled in 30 days' }),
    l30DaysUniquePayers: z.int().openapi({
      description:
        'Number of wallets that paid for this listing. If it is sold only through the facilitator, number of wallets that paid its seller through the facilitator',
    }),
    lastCalledAt: wire.isoTime.nullable().openapi({ description: 'Hour of the newest settled payment' }),
    l30DaysFailedCalls: z
      .int()
      .openapi({ description: 'Number of payments that failed to settle in 30 days' }),
    l30DaysFees: wire.baseUnits.openapi({
      description: "The platform's part of settled payments in base units; the list is ranked by it",
    }),
    proven: z
      .boolean()
      .openapi({ description: "Whether the URL itself asks for payments to the seller's wallet" }),
    finding: z
      .string()
      .nullable()
      .openapi({ description: 'Why it is not proven; null if it is, or has not been checked yet' }),
  })
  .openapi({ description: 'Settled and final payments of the last 30 days' })

export const discoveryResource = z
  .object({
    resource: z.string().openapi({ example: 'https://weather.example/forecast' }),
    type: z.enum(['http', 'mcp']),
    serverUrl: z.string().optional().openapi({
      example: 'https://tools.example/mcp',
      description: 'For a tool: URL of its MCP server, if the provider registered one',
    }),
    x402Version: z.literal([1, 2]),
    accepts: z.array(accepts),
    lastUpdated: wire.isoTime,
    description: z.string(),
    mimeType: z.string(),
    serviceName: z.string().optional(),
    tags: z.array(z.string()).optional(),
    iconUrl: z.string().optional(),
    extensions: z.object({ bazaar: z.looseObject({}) }),
    quality,
  })
  .openapi('DiscoveryResource')

export const discoverySearch = z.object({
  x402Version: z.literal(2),
  resources: z.array(discoveryResource),
  partialResults: z.boolean(),
  pagination: z.object({ limit: z.int(), cursor: wire.cursorOut }),
})

const filters = z.object({
  type: z.enum(['http', 'mcp']).optional(),
  payTo: wire
    .text(42)
    .optional()
    .openapi({ description: "A seller's wallet, or the splitter that payments to the seller go to" }),
  scheme: wire.text(40).optional(),
  network: wire
    .text(80)
    .optional()
    .openapi({ description: 'CAIP-2 identifier or name of the network', example: 'eip155:8453' }),
  extensions: wire.text(80).optional().openapi({ description: 'A key of `extensions`' }),
  limit: wire
    .text(9)
    .optional()
    .openapi({ type: 'integer', minimum: 1, maximum: maxDiscoveryLimit, default: 20 }),
})
const offset = wire.text(9).optional().openapi({ type: 'integer', minimum: 0, default: 0 })
const pages = z.object({ limit: z.int(), offset: z.int(), total: z.int() })

const listed = 'In the form of x402 (Bazaar), best first. The facilitator gives the same answer.'
const tags = ['Discovery']

const getResources = route('get', '/discovery/resources', {
  summary: 'List what can be bought',
  description: listed,
  tags,
  query: filters.extend({ offset }),
  responses: {
    200: jsonAnswer(
      'A page of the list',
      z.object({ x402Version: z.literal(2), items: z.array(discoveryResource), pagination: pages }),
    ),
  },
})

const getSearch = route('get', '/discovery/search', {
  summary: 'Search the catalog for words in the descriptions',
  description: `${listed} Listings that contain more of the words come first.`,
  tags,
  query: filters.extend({ query: wire.text(400), cursor: wire.text(9).optional() }),
  responses: {
    200: jsonAnswer('The matching listings', discoverySearch),
  },
})

const getMerchant = route('get', '/discovery/merchant', {
  summary: 'List resources whose payments go to a wallet',
  description: listed,
  tags,
  query: filters.extend({ payTo: wire.address, offset }),
  responses: {
    200: jsonAnswer(
      'A page of the list',
      z.object({ payTo: wire.addressOut, resources: z.array(discoveryResource), pagination: pages }),
    ),
  },
})

const sales = z
  .object({
    origin: z.string(),
    openapi: z.looseObject({}).openapi({ description: 'For `/openapi.json`' }),
    x402: z.looseObject({}).openapi({ description: 'For `/.well-known/x402`' }),
    llms: z.string().openapi({ description: 'For `/llms.txt`' }),
  })
  .openapi('Sales')

const getSales = route('get', '/discovery/providers/{id}', {
  summary: 'Documents for a provider to publish at its own origin, so that clients find what it sells there',
  description: "A provider's middleware serves these documents.",
  tags,
  query: z.object({
    origin: wire
      .text(300)
      .optional()
      .openapi({ description: 'Default: the origin where it sells the most endpoints' }),
  }),
  responses: { 200: jsonAnswer('The documents', sales) },
})

export type DiscoveryRouteOptions = {
  sql: Database
  /** Null: this gateway has no catalog. */
  catalogue: Catalogue | null
  settings: Pick<GatewaySettings, 'issuer'>
}

/** Adds routes for finding what is sold here; none if the operator publishes no catalog. */
export function addDiscoveryRoutes(app: App, { catalogue, sql, settings }: DiscoveryRouteOptions): void {
  if (catalogue === null) return
  const { issuer } = settings
  const gatewayOrigin = new URL(issuer).origin
  for (const [described, name] of [
    [getResources, 'resources'],
    [getSearch, 'search'],
    [getMerchant, 'merchant'],
  ] as const) {
    app.openAPIRegistry.registerPath(described)
    app.get(described.path, async (c) => answerJson(c, await answerDiscovery(catalogue, name, c.req.query())))
  }

  /** Returns the documents that describe what is sold at an origin. */
  const describe = async (
    listings: readonly Listing[],
    options: Pick<SalesOptions, 'origin' | 'title' | 'ownershipProofs'>,
  ): Promise<Sales> => {
    const there = listings.filter(({ resource }) => originOf(resource) === options.origin).slice(0, maxShown)
    return describeSales({
      ...options,
      issuer,
      accepts: catalogue.accepts,
      listings: await catalogue.describe(there),
    })
  }

  app.openapi(getSales, async (c) => {
    const { id } = c.req.valid('param')
    const { origin: asked } = c.req.valid('query')
    const provider = await findProvider(sql, id)
    if (provider === undefined) throw new Refusal('unknown_provider')
    const text = await catalogue.remember(
      JSON.stringify(['sales', id, provider.version, asked]),
      async () => {
        const own = await catalogue.list(
          ({ providerId, endpointId }) => providerId === id && endpointId !== null,
        )
        const origin = asked ?? chooseOrigin(own, gatewayOrigin)
        const ownershipProofs = provider.ownershipProofs.flatMap((one) =>
          one.origin === origin ? [one.signature] : [],
        )
        const title = provider.serviceName ?? provider.name
        return JSON.stringify(await describe(own, { origin, title, ownershipProofs }))
      },
    )
    return answerJson(c, text) as never
  })

  const keep = (c: Context) => c.header('Cache-Control', 'public, max-age=30')
  const sold = (part: 'openapi' | 'x402' | 'llms') =>
    catalogue.remember(`sold ${part}`, async () => {
      const listings = await catalogue.list(({ endpointId }) => endpointId !== null)
      const title = 'Sold by this gateway'
      const found = await describe(listings, { origin: gatewayOrigin, title, ownershipProofs: [] })
      return part === 'llms' ? found.llms : JSON.stringify(found[part])
    })
  for (const [path, part] of [
    ['/openapi.json', 'openapi'],
    ['/.well-known/x402', 'x402'],
  ] as const) {
    app.get(path, async (c) => {
      const text = await sold(part)
      keep(c)
      return answerJson(c, text)
    })
  }
  app.get('/llms.txt', async (c) => {
    const text = await sold('llms')
    keep(c)
    return c.body(text, 200, { 'Content-Type': 'text/plain; charset=UTF-8' })
  })
}

/** Chooses the origin with the most listings; the gateway's own origin only if there is no other. */
function chooseOrigin(listings: readonly Listing[], gatewayOrigin: string): string {
  const counts = new Map<string, number>()
  for (const { resource } of listings) {
    const origin = originOf(resource)
    if (origin !== null) counts.set(origin, (counts.get(origin) ?? 0) + (origin === gatewayOrigin ? 0 : 1))
  }
  const [most] = [...counts].sort(([, a], [, b]) => b - a)
  return most?.[0] ?? gatewayOrigin
}

function originOf(resource: string): string | null {
  const url = URL.parse(resource)
  return url !== null && /^https?:$/.test(url.protocol) ? url.origin : null
}
