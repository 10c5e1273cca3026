import { parseUrl } from '../protocol/fields.ts'

/** Maximum number of redirects to follow, the same as in `fetch`. */
const maxRedirects = 20

/** HTTP statuses that `fetch` follows. */
const redirects: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])

/** Request headers that contain a payment. An `Authorization` header with the scheme `x402` also contains a payment. */
const paymentHeaders = ['payment-signature', 'x-payment', 'service-pass']
/** Request headers that `fetch` itself drops when it follows a redirect to another origin. */
const credentials = ['authorization', 'cookie', 'proxy-authorization']

/** Response headers in which a seller reports on a payment. */
const reports = [
  'payment-response',
  'service-charged',
  'service-pass',
  'service-payment-id',
  'service-payment-status',
  'service-receipt',
  'x-payment-response',
]

/** A request that contains a payment. */
export type PaidRequest = {
  /** Absolute URL. */
  url: string
  /** The `Request` that the caller passed to `fetch`. If set, it is sent instead of `url`. */
  request?: Request | undefined
  init: RequestInit
  /** Reads the body again for a redirect that sends it again. Default: `init.body`. */
  readBody?: () => Promise<BodyInit | null | undefined>
  /** Whether the body contains the payment. Such a request is never sent to another origin. */
  isPaidInBody?: boolean
}

/** Thrown instead of following a redirect to another origin. */
export class LeavingRedirect extends TypeError {}

/**
 * Sends a request with its payment, and follows redirects like `fetch`, with one difference. The payment goes only to the origin that requested it,
 * and to no further URL once a response reports that the payment was charged. `fetch` itself drops `Authorization` for another origin, but not
 * `PAYMENT-SIGNATURE` or `X-PAYMENT`, and the payment header of a tab shows everything that was bought on the tab.
 *
 * A redirect's report on the payment is added to the final response. A report from another origin is removed.
 *
 * @throws {TypeError} for a redirect that can't be followed. Also throws any error of `fetch`.
 */
export async function fetchPaid(fetch: typeof globalThis.fetch, paid: PaidRequest): Promise<Response> {
  const { request, readBody = async () => paid.init.body, isPaidInBody = false } = paid
  if ((paid.init.redirect ?? request?.redirect ?? 'follow') !== 'follow')
    return fetch(request ?? paid.url, paid.init)
  const { origin } = new URL(paid.url)
  let url = paid.url
  let init: RequestInit & { method: string } = { ...paid.init, method: methodOf(paid) }
  let isPaying = true
  let report: Headers | undefined
  let response = await fetch(request ?? url, { ...init, redirect: 'manual' })
  for (let count = 0; ; count++) {
    requireReadable(response)
    if (isPaying && isCharged(response.headers)) report = response.headers
    const target = targetOf(response, url)
    if (target === undefined) break
    if (count === maxRedirects) throw new TypeError('the seller redirects too often')
    void response.body?.cancel().catch(() => {})
    const leaves = new URL(target).origin !== origin
    if (leaves && isPaidInBody)
      throw new LeavingRedirect(`${origin} redirects to ${target}, which is not followed`)
    if (count === 0 && request) init = { ...pickInit(request), ...init }
    init = followedInit(init, response.status, await readBody())
    if (leaves || report) {
      isPaying = false
      init = { ...init, headers: withoutPayment(init.headers, leaves) }
    }
    url = target
    response = await fetch(url, { ...init, redirect: 'manual' })
  }
  return url === paid.url ? response : finalResponse(response, url, isPaying ? response.headers : report)
}

/**
 * Returns a `fetch` that follows redirects only within the origin of the request. Use it for requests that contain a payment, a signature or a key
 * anywhere except in the headers that `fetch` drops for another origin.
 *
 * Throws a {@link LeavingRedirect} for a redirect to another origin.
 *
 * @param fetch a function with the behavior of the global `fetch`.
 */
export function withinOrigin(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return (input, init = {}) => fetchPaid(fetch, { url: String(input), init, isPaidInBody: true })
}

function methodOf({ init, request }: PaidRequest): string {
  return (init.method ?? request?.method ?? 'GET').toUpperCase()
}

/** Browsers hide the target of a redirect from code that doesn't follow redirects automatically. */
function requireReadable({ type, status }: Response): void {
  if (type === 'opaqueredirect' || (type !== 'error' && status === 0)) {
    throw new TypeError('the seller redirects a payment: request the URL that it redirects to')
  }
}

function targetOf({ status, headers }: Response, url: string): string | undefined {
  const location = headers.get('location')
  if (!redirects.has(status) || location === null) return undefined
  const target = parseUrl(location, url)
  if (!target || !/^https?:$/.test(target.protocol)) {
    throw new TypeError('the seller redirects to something that is not an http(s) URL')
  }
  return target.href
}

/** Copies the options of a caller's `Request` that the runtime supports. Leaves out the mode `navigate`, because `fetch` rejects it. */
function pickInit({
  headers,
  mode,
  credentials,
  cache,
  referrerPolicy,
  integrity,
  keepalive,
  signal,
}: Request) {
  const all = { headers, mode, credentials, cache, referrerPolicy, integrity, keepalive, signal }
  const known = Object.entries(all).filter(([, value]) => value !== undefined && value !== 'navigate')
  return Object.fromEntries(known) as RequestInit
}

/** Returns the request that follows a redirect (Fetch standard, HTTP-redirect fetch). */
function followedInit(
  init: RequestInit & { method: string },
  status: number,
  body: BodyInit | null | undefined,
): RequestInit & { method: string } {
  const { method } = init
  const isGet = status === 303 ? method !== 'GET' && method !== 'HEAD' : status < 303 && method === 'POST'
  if (!isGet) return { ...init, ...(body !== undefined && { body }) }
  const { body: _, ...rest } = init
  const headers = new Headers(init.headers)
  for (const name of [...headers.keys()]) if (/^content-/.test(name)) headers.delete(name)
  return { ...rest, method: 'GET', headers }
}

/** Returns whether one of a request's headers contains a payment. */
export function carriesPayment(headers: Headers): boolean {
  return isPaidInAuthorization(headers) || paymentHeaders.some((name) => headers.has(name))
}

function isPaidInAuthorization(headers: Headers): boolean {
  return /^x402 /i.test(headers.get('authorization') ?? '')
}

/** @param leaves whether the request goes to another origin. That origin must not receive the caller's own credentials either. */
function withoutPayment(given: RequestInit['headers'], leaves: boolean): Headers {
  const headers = new Headers(given)
  for (const name of paymentHeaders) headers.delete(name)
  if (isPaidInAuthorization(headers)) headers.delete('authorization')
  if (leaves) for (const name of credentials) headers.delete(name)
  return headers
}

function isCharged(headers: Headers): boolean {
  return headers.has('service-payment-id') && headers.get('service-payment-status') !== 'voided'
}

/** @param report the headers of the response that reports on the payment. Undefined if there is none. */
function finalResponse(response: Response, url: string, report: Headers | undefined): Response {
  const { status, statusText, type } = response
  const headers = new Headers(response.headers)
  for (const name of reports) {
    const value = report?.get(name) ?? null
    if (value === null) headers.delete(name)
    else headers.set(name, value)
  }
  const final = new Response(response.body, { status, statusText, headers })
  for (const [name, value] of Object.entries({ url: response.url || url, redirected: true, type }))
    Object.defineProperty(final, name, { value })
  return final
}
