import { type GateAnswer, refuse } from './decision.ts'
import { requireProvider } from './gate.ts'

/** Options of `serveDiscovery`. */
export type DiscoveryOptions = {
  /** The gateway's URL. */
  gatewayUrl: string
  providerId: string
  /** Origin that buyers use, if endpoints are registered on several origins. Default: the origin with the most endpoints. */
  publicUrl?: string
  /** Your own OpenAPI document. The middleware adds prices to the paths that are sold, and leaves the other paths unchanged. */
  openapi?: object
  /** Timeout in ms of a call to the gateway. Default 5,000. */
  timeout?: number
}

/** The gateway's documents about the endpoints that are sold at an origin. */
type Sales = { openapi: Document; x402: object; llms: string }
type Document = Record<string, unknown> & { paths?: Record<string, Record<string, object>> }

/** Time in ms for which the documents are served before they are fetched again. */
const keptMs = 60_000
/** Pause in ms after a failed call before the gateway is called again. */
const pauseMs = 5_000

/**
 * Serves the documents in which agents and catalogs find what an origin sells: `/openapi.json`, `/.well-known/x402` and `/llms.txt`. Their contents
 * come from the registration at the gateway.
 *
 * It calls the gateway at most once a minute, however many requests arrive. It forwards no part of a request to the gateway.
 *
 * @throws {TypeError} without a gateway or a provider.
 */
export function createDiscovery(options: DiscoveryOptions) {
  const { gatewayUrl, providerId, publicUrl, openapi, timeout = 5_000 } = options
  requireProvider(options)
  const origin = publicUrl === undefined ? '' : `?origin=${encodeURIComponent(new URL(publicUrl).origin)}`
  const url = `${gatewayUrl.replace(/\/+$/, '')}/discovery/providers/${encodeURIComponent(providerId)}${origin}`
  let kept: Sales | undefined
  let askAt = 0
  let asking: Promise<void> | undefined

  async function ask(): Promise<void> {
    try {
      // Workers don't support redirect 'error'.
      const response = await fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(timeout) })
      if (response.status !== 200) throw new TypeError(`the gateway responded with status ${response.status}`)
      kept = readSales(await response.json())
      askAt = Date.now() + keptMs
    } catch {
      askAt = Date.now() + pauseMs
    }
  }

  async function read(): Promise<Sales | undefined> {
    if (Date.now() >= askAt) {
      asking ??= ask().finally(() => {
        asking = undefined
      })
      // While the documents are fetched again, the previous ones are served.
      if (kept === undefined) await asking
    }
    return kept
  }

  async function write(body: (sales: Sales) => string, type: string): Promise<GateAnswer> {
    const sales = await read()
    if (sales === undefined)
      return refuse('dependency_unavailable', 'The gateway did not return the list of endpoints sold here', 5)
        .answer
    const headers = {
      'Content-Type': type,
      'Cache-Control': 'public, max-age=60',
      // Everyone may read the documents, including web pages of other origins.
      'Access-Control-Allow-Origin': '*',
    }
    return { status: 200, headers, body: body(sales) }
  }

  const documents: Record<string, () => Promise<GateAnswer>> = {
    '/openapi.json': () =>
      write(
        (sales) => JSON.stringify(merge(openapi as Document | undefined, sales.openapi)),
        'application/json',
      ),
    '/.well-known/x402': () => write(({ x402 }) => JSON.stringify(x402), 'application/json'),
    '/llms.txt': () => write(({ llms }) => llms, 'text/plain; charset=utf-8'),
  }

  return {
    /** Returns the response to a request for one of the documents. Returns undefined for any other request. Never throws. */
    answer({ method, url }: { method: string; url: string }): Promise<GateAnswer> | undefined {
      if (method !== 'GET' && method !== 'HEAD') return undefined
      const { pathname } = new URL(url)
      return Object.hasOwn(documents, pathname) ? documents[pathname]?.() : undefined
    },
  }
}

function readSales(answer: unknown): Sales {
  const { openapi, x402, llms } = (answer ?? {}) as Partial<Sales>
  if (typeof openapi !== 'object' || typeof x402 !== 'object' || typeof llms !== 'string')
    throw new TypeError('the gateway returned no documents')
  return { openapi, x402, llms }
}

/** Merges a provider's own document with the gateway's, which adds prices and fills in missing fields. */
function merge(own: Document | undefined, sold: Document): Document {
  if (own === undefined) return sold
  const paths: Record<string, Record<string, object>> = { ...own.paths }
  for (const [path, operations] of Object.entries(sold.paths ?? {})) {
    const before = paths[path] ?? {}
    const merged = Object.entries(operations).map(([method, operation]) => {
      const theirs = (before[method] ?? {}) as { responses?: object }
      const ours = operation as { responses?: object; 'x-payment-info'?: object }
      return [
        method,
        {
          ...ours,
          ...theirs,
          responses: { ...ours.responses, ...theirs.responses },
          'x-payment-info': ours['x-payment-info'],
        },
      ]
    })
    paths[path] = { ...before, ...Object.fromEntries(merged) }
  }
  return { ...sold, ...own, paths }
}
