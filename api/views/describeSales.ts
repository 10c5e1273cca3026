import { type Described, hasBody, shownMethod } from '@tollkeeper/ledger/discovery/bazaar'
import type { Catalogue } from '@tollkeeper/ledger/discovery/catalogue'
import type { ListedWithDocument } from '@tollkeeper/ledger/discovery/documents'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'

/*
 * The documents in which clients look up what an origin sells: `/openapi.json` with `x-payment-info` (x402scan, MPP and agentcash read the
 * same object), `/.well-known/x402` and `/llms.txt`.
 */

/** Maximum number of endpoints in an origin's documents, because an agent reads all of them. The catalog has the rest. */
export const maxShown = 100

export type SalesOptions = {
  origin: string
  title: string
  /** URL of the gateway. */
  issuer: string
  /** The best listings first, at most {@link maxShown}. */
  listings: readonly ListedWithDocument[]
  accepts: Catalogue['accepts']
  ownershipProofs: readonly string[]
}

export type Sales = { origin: string; openapi: object; x402: object; llms: string }

type Sold = { listing: ListedWithDocument; described: Described; method: string; path: string }

export function describeSales(options: SalesOptions): Sales {
  const { origin, listings, ownershipProofs } = options
  const sold = listings.flatMap((listing): Sold[] => {
    const { described } = listing
    if (described === null || !/^https?:/.test(listing.resource)) return []
    return [{ listing, described, method: shownMethod(described.method), path: pathOf(listing.resource) }]
  })
  return {
    origin,
    openapi: describe(options, sold),
    x402: {
      version: 1,
      resources: sold.filter(({ path }) => !path.includes('{')).map(({ listing }) => listing.resource),
      ...(ownershipProofs.length > 0 && { ownershipProofs }),
    },
    llms: writeLlms(options, sold),
  }
}

/** Converts a path like `/cities/:city/*` to OpenAPI's form. */
function pathOf(resource: string): string {
  const { pathname } = new URL(resource)
  return pathname.replace(/\/:(\w+)(?=\/|$)/g, '/{$1}').replace(/\*$/, '{rest}')
}

function describe(
  { origin, title, issuer, listings, accepts, ownershipProofs }: SalesOptions,
  sold: readonly Sold[],
) {
  const paths: Record<string, Record<string, object>> = {}
  // To OpenAPI, `/a/{b}` and `/a/{c}` are the same path, so both operations get the parameter names of the path that comes first.
  const named = new Map<string, string>()
  const ids = new Map<string, number>()
  for (const one of sold) {
    const shape = one.path.replace(/\{\w+\}/g, '{}')
    const path = named.get(shape) ?? one.path
    named.set(shape, path)
    const operation = operationOf({ ...one, path }, accepts(one.listing))
    const count = ids.get(operation.operationId) ?? 0
    ids.set(operation.operationId, count + 1)
    if (count > 0) operation.operationId += `_${count}`
    paths[path] = { ...paths[path], [one.method.toLowerCase()]: operation }
  }
  const categories = [...new Set(listings.flatMap(({ tags }) => tags))].sort().slice(0, 20)
  return {
    openapi: '3.1.0',
    info: {
      title,
      version: '1',
      description:
        'Paid per request in USDC with x402: a request without a payment gets a 402 that says what to pay.',
      contact: { url: origin },
      'x-guidance': guidance,
    },
    servers: [{ url: origin }],
    security: [],
    'x-service-info': { categories, docs: { homepage: origin, llms: '/llms.txt' } },
    'x-discovery': { ownershipProofs, llmsTxtUrl: `${origin}/llms.txt` },
    externalDocs: { description: 'The gateway that settles', url: `${issuer}/openapi/gateway.json` },
    paths,
  }
}

const guidance =
  'Call an operation, read the PAYMENT-REQUIRED header of its 402, sign one of the payments that it accepts, and send the same request again with ' +
  'PAYMENT-SIGNATURE. Any x402 v2 client does this. You are charged once your request is served.'

function operationOf({ listing, described, method, path }: Sold, accepts: ReturnType<Catalogue['accepts']>) {
  const { price, description, mimeType, tags } = listing
  const { inputSchema, inputExample, outputSchema, outputExample } = described
  const parameters = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }))
  const isJson = /json/.test(mimeType)
  const answer = {
    ...(outputSchema && { schema: outputSchema }),
    ...(outputExample !== null && { example: outputExample }),
  }
  return {
    operationId: `${method.toLowerCase()}${path.replace(/[^A-Za-z0-9]+/g, '_').replace(/_$/, '')}`,
    summary: description || `${method} ${path}`,
    ...(tags.length > 0 && { tags }),
    security: [],
    ...(hasBody(method)
      ? {
          ...(parameters.length > 0 && { parameters }),
          requestBody: {
            required: true,
            content: {
              'application/json': {
                schema: inputSchema ?? { type: 'object' },
                ...(inputExample !== null && { example: inputExample }),
              },
            },
          },
        }
      : { parameters: [...parameters, ...queryParameters(inputSchema, inputExample)] }),
    responses: {
      200: { description: 'The response that was paid for', content: { [mimeType]: isJson ? answer : {} } },
      402: { description: 'Payment Required' },
    },
    'x-payment-info': {
      price: { mode: 'fixed', currency: 'USD', amount: formatUsdc(price) },
      protocols: [{ x402: {} }],
      offers: accepts.map(({ asset, network }) => ({
        intent: 'charge',
        method: 'evm',
        amount: price.toString(),
        currency: asset,
        description: `${formatUsdc(price)} USDC on ${network}`,
      })),
    },
  }
}

function queryParameters(schema: Described['inputSchema'], example: unknown): object[] {
  const properties = (schema?.properties ?? {}) as Record<string, unknown>
  const required = Array.isArray(schema?.required) ? schema.required : []
  const examples = (example ?? {}) as Record<string, unknown>
  return Object.entries(properties).map(([name, one]) => ({
    name,
    in: 'query',
    schema: one,
    ...(required.includes(name) && { required: true }),
    ...(examples[name] !== undefined && { example: examples[name] }),
  }))
}

/** Joins lines, so that a provider's text can't start a new line in the document, and cuts it to the maximum length. */
const oneLine = (text: string) => text.replace(/\s+/g, ' ').trim().slice(0, 500)

function writeLlms({ title, issuer, origin }: SalesOptions, sold: readonly Sold[]): string {
  const lines = sold.map(({ listing, method }) => {
    const what = oneLine(listing.description) || 'a paid endpoint'
    return `- \`${method} ${listing.resource}\`: ${what}. ${formatUsdc(listing.price)} USDC per request.`
  })
  return [
    `# ${oneLine(title)}`,
    '',
    '> Paid per request in USDC with x402.',
    '',
    guidance,
    '',
    `- [OpenAPI](${origin}/openapi.json): parameters, schemas and prices`,
    `- [Search](${issuer}/discovery/search?query=): everything else sold through this gateway`,
    '',
    '## Endpoints',
    '',
    ...(lines.length > 0 ? lines : ['No endpoint is listed.']),
    '',
  ].join('\n')
}
