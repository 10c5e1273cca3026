import { isOfAnotherScheme } from '@tollkeeper/sdk/protocol/authorizationHeader'

/*
 * The headers that pass between a buyer and a provider's upstream. Both are strangers, to us and to each other, and all providers
 * share one origin with the dashboard. So from the upstream only listed headers pass, and from the buyer none that the upstream
 * would take for our word.
 */

/** RFC 9110 section 7.6.1, besides those that `Connection` names. */
const hopByHop = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/**
 * Headers that a buyer may not send to an upstream: the body's framing, the payment, cookies of a shared origin, and
 * where the request came from. `Authorization` is judged by its scheme.
 */
const ofBuyer = new Set([
  'content-length',
  'cookie',
  'expect',
  'host',
  'payment-signature',
  'via',
  'x-payment',
])

/**
 * Headers that name another method, path or host than what was paid for. Rails, Symfony, Express and Spring heed the first three, IIS,
 * Symfony and others the rest, so a dear call would be served for the price of a cheap one.
 */
const overrides = new Set([
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-host',
  'x-http-destinationurl',
  'x-http-host-override',
  'x-override-url',
  'x-rewrite-url',
  'x-sendfile-type',
  'x-waws-unencoded-url',
])

/** Headers in which proxies and CDNs say where a request came from. None of theirs stands there, so none of them is true. */
const ofProxies = new Set([
  'client-ip',
  'do-connecting-ip',
  'fastly-client-ip',
  'fly-client-ip',
  'forwarded',
  'front-end-https',
  'proxy-client-ip',
  'true-client-ip',
  'wl-proxy-client-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-forwarded',
  'x-nf-client-connection-ip',
  'x-originating-ip',
  'x-proxyuser-ip',
  'x-remote-addr',
  'x-remote-ip',
  'x-scheme',
  'x-true-client-ip',
  'x-url-scheme',
])

/** Prefixes of further such headers: `Service-` is ours, `X-Middleware-` is Next.js', many use `X-Original-` and `X-Accel-`. */
const prefixes = /^(?:service|cf|x-(?:accel|amzn|appengine|azure|envoy|forwarded|middleware|original|real))-/

/** Header by which the gateway proves to an upstream that it is calling. */
const upstreamSecretHeader = 'Service-Upstream-Secret'

/**
 * Schemes that a browser adds by itself for all URLs of an origin: as cookies do, such credentials may be meant for somebody else at
 * this origin.
 */
const ambientScheme = /^(?:basic|digest|negotiate|ntlm)\b/i
/** A key of this gateway's, which no upstream may get to know. */
const ownKey = /^bearer +tko?_/i

export type RequestHeadersOptions = {
  /** The valid secrets; two for a day after a rotation. */
  secrets: readonly string[]
  paymentId: string
  /** The URL that buyers call in place of the upstream's root. */
  publicUrl: URL
  /** The length of the body; null: there is none. */
  bodyLength: number | null
}

/** A buyer's request headers in the form that its upstream gets. */
export function requestHeaders(
  given: Headers,
  { secrets, paymentId, publicUrl, bodyLength }: RequestHeadersOptions,
): Record<string, string> {
  const named = namedByConnection(given.get('connection'))
  const headers: Record<string, string> = {}
  for (const [name, value] of given) {
    if (hopByHop.has(name) || named.has(name) || !isBuyers(name)) continue
    if (name === 'authorization' && !isForUpstream(value)) continue
    headers[name] = value
  }
  // Some servers take no body without it, and we know it even where the buyer didn't.
  if (bodyLength !== null) headers['content-length'] = String(bodyLength)
  return {
    ...headers,
    Via: '1.1 tollkeeper',
    'X-Forwarded-Proto': publicUrl.protocol.slice(0, -1),
    'X-Forwarded-Host': publicUrl.host,
    'X-Forwarded-Prefix': publicUrl.pathname,
    'Service-Payment-Id': paymentId,
    [upstreamSecretHeader]: secrets.join(', '),
  }
}

/** Whether `Authorization` is the buyer's own word to the upstream: neither a payment, nor for the gateway, nor a browser's. */
function isForUpstream(value: string): boolean {
  return isOfAnotherScheme(value) && !ambientScheme.test(value) && !ownKey.test(value)
}

function isBuyers(name: string): boolean {
  if (ofBuyer.has(name) || overrides.has(name) || ofProxies.has(name)) return false
  // CGI, WSGI and others read `a_b` as `a-b`.
  return !prefixes.test(name) && !name.includes('_')
}

/**
 * An upstream's headers that describe its content. Any other might speak to a browser for the whole origin
 * (cookies, `Clear-Site-Data`, `Strict-Transport-Security`), or to a cache or proxy in front of us (`X-Accel-Redirect`,
 * `CDN-Cache-Control`), or claim a payment.
 */
const ofUpstream = new Set([
  'accept-patch',
  'accept-post',
  'accept-ranges',
  'age',
  'allow',
  'cache-control',
  'content-digest',
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-length',
  'content-range',
  'content-type',
  'date',
  'deprecation',
  'etag',
  'expires',
  'last-modified',
  'link',
  'location',
  'preference-applied',
  'repr-digest',
  'retry-after',
  'server-timing',
  'signature',
  'signature-input',
  'sunset',
  'vary',
])

/** An API's own `X-` headers, except those that servers, proxies and our own HTTP library act on. */
const own = /^x-(?!accel-|sendfile|lighttpd-|reproxy-|hono-|forwarded-|payment)/

/** An upstream's headers in the form that the buyer gets. */
export function responseHeaders(
  given: NodeJS.Dict<string[]>,
  { requested, base, publicUrl }: { requested: URL; base: URL; publicUrl: URL },
): Headers {
  const named = namedByConnection(given.connection?.join(','))
  const headers = new Headers()
  for (const [name, values = []] of Object.entries(given)) {
    if (named.has(name) || !(ofUpstream.has(name) || own.test(name))) continue
    for (const value of values) headers.append(name, value)
  }
  const location = headers.get('location')
  if (location !== null) headers.set('location', publicLocation(location, { requested, base, publicUrl }))
  headers.set('x-content-type-options', 'nosniff')
  // A provider's page gets an origin of its own, and runs no script, because the dashboard is on this origin.
  headers.set('content-security-policy', "sandbox; default-src 'none'")
  return headers
}

/** The target of an upstream's redirect, as a URL that the buyer can follow. */
function publicLocation(
  location: string,
  { requested, base, publicUrl }: { requested: URL; base: URL; publicUrl: URL },
): string {
  const target = URL.parse(location, requested)
  if (target === null) return location
  const root = base.pathname.replace(/\/$/, '')
  const isOwn = target.origin === base.origin && `${target.pathname}/`.startsWith(`${root}/`)
  if (!isOwn) return target.href
  return publicUrl.href.replace(/\/$/, '') + target.pathname.slice(root.length) + target.search + target.hash
}

function namedByConnection(connection: string | null | undefined): Set<string> {
  return new Set(connection?.split(',').map((name) => name.trim().toLowerCase()))
}
