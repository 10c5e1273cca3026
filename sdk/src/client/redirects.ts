import { parseUrl } from '../protocol/fields.ts'

/** The maximum number of redirects that are followed, as `fetch` has it. */
const maxRedirects = 20

/** Statuses that `fetch` follows. */
const redirects: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])

/** Request headers that are a payment. So is an `Authorization` with the scheme `x402`. */
const paymentHeaders = ['payment-signature', 'x-payment']
/** Request headers that `fetch` itself drops for another origin. */
const credentials = ['authorization', 'cookie', 'proxy-authorization']

/** Headers by which a seller reports on a payment. */
const reports = [
  'payment-response',
  'service-charged',
  'service-payment-id',
  'service-payment-status',
  'service-receipt',
  'x-payment-response',
]

/** A request that carries a payment. */
export type PaidRequest = {
  /** Absolute. */
  url: string
  /** Instead of the URL: the caller's own `Request`. */
  request?: Request | undefined
  init: RequestInit
  /** The body once more, for a redirect that keeps it. Default: `init.body`. */
  readBody?: () => Promise<BodyInit | null | undefined>
  /** Whether the payment is in the body. Such a request is never sent to another origin. */
  isPaidInBody?: boolean
}

/** Thrown instead of following a redirect to another origin. */
export class LeavingRedirect extends TypeError {}

/**
 * Sends a request with its payment, and follows redirects as `fetch` does, with one difference: the payment goes only to the origin
 * that asked for it, and to no further URL once an answer says that it was charged. `fetch` itself drops `Authorization` for
 * another origin, and neither `PAYMENT-SIGNATURE` nor `X-PAYMENT`, of which a tab's shows all that was bought on it.
 *
 * What a seller reports on the payment in a redirect is added to the final response, and another origin's report is removed.
 *
 * @throws {TypeError} for a redirect that can't be followed, and whatever `fetch` throws.
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
 * Returns a `fetch` that follows redirects only within the origin of the request, for requests that carry a payment, a signature or a
 * key outside the headers that `fetch` drops for another origin.
 *
 * Its calls throw a {@link LeavingRedirect} for a redirect to another origin.
 *
 * @param fetch as the global one.
 */
export function withinOrigin(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return (input, init = {}) => fetchPaid(fetch, { url: String(input), init, isPaidInBody: true })
}

function methodOf({ init, request }: PaidRequest): string {
  return (init.method ?? request?.method ?? 'GET').toUpperCase()
}

/** Browsers hide where a redirect leads from a caller who doesn't let them follow it. */
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
    throw new TypeError('the seller redirects to what is no http(s) URL')
  }
  return target.href
}

/** The options of a caller's `Request`, as far as its runtime has them. The mode of a navigation can't be asked for. */
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

/** The request that follows a redirect (Fetch standard, HTTP-redirect fetch). */
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

/** Whether a request carries a payment in one of its headers. */
export function carriesPayment(headers: Headers): boolean {
  return isPaidInAuthorization(headers) || paymentHeaders.some((name) => headers.has(name))
}

function isPaidInAuthorization(headers: Headers): boolean {
  return /^x402 /i.test(headers.get('authorization') ?? '')
}

/** @param leaves whether the request goes to another origin, which sees none of the caller's own credentials either. */
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

/** @param report headers of the answer that reports on the payment; undefined: none does. */
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
