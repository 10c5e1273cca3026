/*
 * What passes between a buyer and a provider's upstream. Both are strangers, to us and to each other, and all providers
 * share one origin with the dashboard. So from the upstream only what is listed goes on, and from the buyer nothing that
 * the upstream would take for our word.
 */

/** RFC 9110 section 7.6.1; what `Connection` names comes to them. */
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
 * Not the buyer's to say to an upstream: how the body is framed, the payment, cookies of an origin that others share, and
 * where the request came from.
 */
const ofBuyer = new Set([
  'authorization',
  'content-length',
  'cookie',
  'expect',
  'host',
  'payment-signature',
  'via',
  'x-payment',
])

/**
 * Another method, path or host than what was paid for. Rails, Symfony, Express and Spring offer the first three, IIS, Symfony and
 * others the rest: a cheap call would be served as a dear one.
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

/** Where a request came from, as a proxy or CDN says it. None of theirs stands there, so none of it is true. */
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

/** Prefixes that count as well: `Service-` is ours, `X-Middleware-` is Next.js', many use `X-Original-` and `X-Accel-`. */
const prefixes = /^(?:service|cf|x-(?:accel|amzn|appengine|azure|envoy|forwarded|middleware|original|real))-/

/** Header in which the gateway shows an upstream that it is calling. */
const upstreamSecretHeader = 'Service-Upstream-Secret'

export type RequestHeadersOptions = {
  /** In force; two for a day after a rotation. */
  secrets: readonly string[]
  paymentId: string
  /** What buyers call in the place of the upstream's own root. */
  publicUrl: URL
  /** Whether there is a body to be framed. */
  hasBody: boolean
}

/** The headers of a buyer's request as its upstream gets them. */
export function requestHeaders(
  given: Headers,
  { secrets, paymentId, publicUrl, hasBody }: RequestHeadersOptions,
): Record<string, string> {
  const named = namedByConnection(given.get('connection'))
  const headers: Record<string, string> = {}
  for (const [name, value] of given) {
    if (hopByHop.has(name) || named.has(name) || !isBuyers(name)) continue
    headers[name] = value
  }
  const length = given.get('content-length')
  if (hasBody && length !== null && !given.has('transfer-encoding')) headers['content-length'] = length
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

function isBuyers(name: string): boolean {
  if (ofBuyer.has(name) || overrides.has(name) || ofProxies.has(name)) return false
  // CGI, WSGI and others read `a_b` as `a-b`.
  return !prefixes.test(name) && !name.includes('_')
}

/**
 * The headers of an upstream's answer that describe its content. Everything else might speak for the whole origin to a browser
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

/** An API's own. Those that servers, proxies and our own HTTP library act on are theirs. */
const own = /^x-(?!accel-|sendfile|lighttpd-|reproxy-|hono-|forwarded-|payment)/

/** An upstream's headers as the buyer gets them. */
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
  // A page that a provider serves gets an origin of its own, and runs no script: the dashboard is on this one.
  headers.set('content-security-policy', "sandbox; default-src 'none'")
  return headers
}

/** Where a redirect of the upstream leads, as the buyer can follow it. */
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
