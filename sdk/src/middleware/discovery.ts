import { type GateAnswer, refuse } from './decision.ts'
import { requireProvider } from './gate.ts'

/** Options of `serveDiscovery`. */
export type DiscoveryOptions = {
  /** The gateway's URL. */
  gatewayUrl: string
  providerId: string
  /** Origin that buyers use, if endpoints are registered on several. Default: the one with most of them. */
  publicUrl?: string
  /** Your own OpenAPI document: its paths that are sold get their prices, and the others stay as they are. */
  openapi?: object
  /** Milliseconds for a call to the gateway. Default 5,000. */
  timeout?: number
}

/** What the gateway knows of what is sold at an origin. */
type Sales = { openapi: Document; x402: object; llms: string }
type Document = Record<string, unknown> & { paths?: Record<string, Record<string, object>> }

/** How long the documents are served before the gateway is asked again. */
const keptMs = 60_000
/** How long the gateway is left alone after a failed call. */
const pauseMs = 5_000

/**
 * Serves the documents by which agents and catalogues find what an origin sells, from its registration at the gateway:
 * `/openapi.json`, `/.well-known/x402` and `/llms.txt`.
 *
 * It asks the gateway once a minute, however many ask, and passes on nothing of a request.
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
      // Workers don't know redirect 'error'.
      const response = await fetch(url, { redirect: 'manual', signal: AbortSignal.timeout(timeout) })
      if (response.status !== 200) throw new TypeError(`the gateway answered ${response.status}`)
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
      // The kept documents are served meanwhile.
      if (kept === undefined) await asking
    }
    return kept
  }

  async function write(body: (sales: Sales) => string, type: string): Promise<GateAnswer> {
    const sales = await read()
    if (sales === undefined)
      return refuse('dependency_unavailable', 'The gateway did not say what is sold here', 5).answer
    const headers = {
      'Content-Type': type,
      'Cache-Control': 'public, max-age=60',
      // Anybody may read them, pages included.
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
    /** The answer to a request for one of the documents; undefined: it is for something else. Never throws. */
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
    throw new TypeError('the gateway gave no documents')
  return { openapi, x402, llms }
}

/** A provider's own document, completed by the gateway's: the price, and fields that the provider left out. */
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
