import { isOfAnotherScheme } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { loginChallenges } from './loginChallenges.ts'

/*
 * The headers that pass between a buyer and a provider's upstream. Both are strangers to us and to each other, and all providers share one
 * origin with the dashboard. So the gateway passes on only listed headers from the upstream, and no header from the buyer that the upstream
 * would take for a header of the gateway.
 */

/** RFC 9110 section 7.6.1, in addition to the headers that `Connection` names. */
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
 * Headers that the gateway doesn't pass from a buyer to an upstream: they frame the body, contain the payment or cookies of the shared origin,
 * or state where the request came from. `Authorization` isn't listed, because its scheme decides whether it passes.
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
 * Headers that make an upstream use another method, path or host than the one that was paid for. With them, a buyer could get an expensive call for
 * the price of a cheap one. Rails, Symfony, Express and Spring obey the first three; IIS, Symfony and others obey the rest.
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

/**
 * Headers in which proxies and CDNs state where a request came from. The gateway adds none of these headers, so any value comes from the
 * client.
 */
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

/**
 * Prefixes of further headers that don't pass: we use `Service-`, Next.js uses `X-Middleware-`, and many servers use `X-Original-` and `X-Accel-`.
 */
const prefixes = /^(?:service|cf|x-(?:accel|amzn|appengine|azure|envoy|forwarded|middleware|original|real))-/

/** Header by which the gateway proves to an upstream that the request comes from it. */
const upstreamSecretHeader = 'Service-Upstream-Secret'

/**
 * Schemes whose credentials a browser adds by itself for all URLs of an origin. As with cookies, such credentials may be meant for another
 * provider on this origin. Only `Basic` works through a proxy: the others sign the URL, or log in a connection.
 */
const ambientScheme = /^(?:basic|digest|negotiate|ntlm)\b/i
const basicScheme = /^basic +([A-Za-z\d+/_=-]*) *$/i
/** A key of this gateway, which no upstream may see. */
const ownKey = /^bearer +tko?_/i
const ownKeyInBasic = /(?:^|:)tko?_/i

export type RequestHeadersOptions = {
  /** The valid secrets; two for a day after a rotation. */
  secrets: readonly string[]
  paymentId: string
  /** The URL that buyers call in place of the upstream's root. */
  publicUrl: URL
  /** The length of the body; null: there is none. */
  bodyLength: number | null
  /** Whether callers log in to the upstream. */
  forwardAuthorization: boolean
}

/** Converts a buyer's request headers to those that the upstream gets. */
export function requestHeaders(
  given: Headers,
  { secrets, paymentId, publicUrl, bodyLength, forwardAuthorization }: RequestHeadersOptions,
): Record<string, string> {
  const named = namedByConnection(given.get('connection'))
  const headers: Record<string, string> = {}
  for (const [name, value] of given) {
    if (hopByHop.has(name) || named.has(name) || !isBuyers(name)) continue
    if (name === 'authorization' && !isForUpstream(value, forwardAuthorization)) continue
    headers[name] = value
  }
  // Some servers accept no body without a length, and we know it even if the buyer didn't send it.
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

/** Returns whether `Authorization` is meant for the upstream: it is neither a payment, nor a gateway key, nor added by a browser. */
function isForUpstream(value: string, forwardAuthorization: boolean): boolean {
  if (!isOfAnotherScheme(value) || ownKey.test(value)) return false
  if (!ambientScheme.test(value)) return true
  const basic = forwardAuthorization ? basicScheme.exec(value)?.[1] : undefined
  return basic !== undefined && !ownKeyInBasic.test(Buffer.from(basic, 'base64').toString())
}

function isBuyers(name: string): boolean {
  if (ofBuyer.has(name) || overrides.has(name) || ofProxies.has(name)) return false
  // CGI, WSGI and others read `a_b` as `a-b`.
  return !prefixes.test(name) && !name.includes('_')
}

/**
 * An upstream's headers that describe its content. Any other header might apply to the whole origin in a browser (cookies,
 * `Clear-Site-Data`, `Strict-Transport-Security`), or to a cache or proxy in front of us (`X-Accel-Redirect`, `CDN-Cache-Control`), or
 * claim a payment.
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

export type ResponseHeadersOptions = {
  requested: URL
  base: URL
  publicUrl: URL
  /** Realm for the upstream's `Basic`; null: callers don't log in there, so none of its challenges pass. */
  loginRealm?: string | null
}

/** Converts an upstream's headers to those that the buyer gets. */
export function responseHeaders(
  given: NodeJS.Dict<string[]>,
  { requested, base, publicUrl, loginRealm = null }: ResponseHeadersOptions,
): Headers {
  const named = namedByConnection(given.connection?.join(','))
  const headers = new Headers()
  for (const [name, values = []] of Object.entries(given)) {
    if (named.has(name) || !(ofUpstream.has(name) || own.test(name))) continue
    for (const value of values) headers.append(name, value)
  }
  if (loginRealm !== null)
    for (const challenge of loginChallenges(given['www-authenticate'] ?? [], loginRealm))
      headers.append('www-authenticate', challenge)
  const location = headers.get('location')
  if (location !== null) headers.set('location', publicLocation(location, { requested, base, publicUrl }))
  headers.set('x-content-type-options', 'nosniff')
  // A provider's page gets an opaque origin and can't run scripts, because the dashboard is on this origin.
  headers.set('content-security-policy', "sandbox; default-src 'none'")
  return headers
}

/** Converts the target of an upstream's redirect to a URL that the buyer can follow. */
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
