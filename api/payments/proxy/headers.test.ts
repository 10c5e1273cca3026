import { expect, test } from 'vitest'
import { requestHeaders, responseHeaders } from './headers.ts'

const publicUrl = new URL('https://gateway.example/p/prov_1')
const ours = {
  Via: '1.1 tollkeeper',
  'X-Forwarded-Proto': 'https',
  'X-Forwarded-Host': 'gateway.example',
  'X-Forwarded-Prefix': '/p/prov_1',
  'Service-Payment-Id': 'pay_1',
  'Service-Upstream-Secret': 'upsec_new, upsec_old',
}
const toUpstream = (
  given: Record<string, string>,
  bodyLength: number | null = null,
  forwardAuthorization = false,
) =>
  requestHeaders(new Headers(given), {
    secrets: ['upsec_new', 'upsec_old'],
    paymentId: 'pay_1',
    publicUrl,
    bodyLength,
    forwardAuthorization,
  })

test('default: passes on the buyer’s headers for the upstream, and adds ours', () => {
  const given = {
    accept: 'text/csv',
    'accept-encoding': 'br',
    'content-type': 'text/plain',
    'idempotency-key': '7',
    'if-none-match': '"1"',
    range: 'bytes=0-9',
    'x-own': 'a, b',
    'x-client-version': '3',
    'x-originality': '1',
    'x-real': '1',
  }
  expect(toUpstream(given)).toEqual({ ...given, ...ours })
})

const ofTheBuyer = `
  Connection Keep-Alive Proxy-Authorization Proxy-Connection TE Trailer Transfer-Encoding Upgrade
  HTTP2-Settings Host Expect Content-Length PAYMENT-SIGNATURE X-PAYMENT Cookie Forwarded Via
  X-Real-IP X-Forwarded X-Forwarded-For X-Forwarded-Host True-Client-IP X-Client-IP X-Cluster-Client-IP
  CF-Connecting-IP CF-Connecting-IPv6 Fastly-Client-IP X-Azure-ClientIP X-Envoy-External-Address
  X-HTTP-Method X-HTTP-Method-Override X_HTTP_Method_Override X-Method-Override X-Original-URL
  X-Original-Host X-Rewrite-URL X-Override-URL X-Host X-Envoy-Original-Path X-Middleware-Subrequest
  X-Accel-Mapping X-Sendfile-Type Service-Upstream-Secret Service_Upstream_Secret Service-Payment-Id
  Service-Receipt
`
test.each(ofTheBuyer.trim().split(/\s+/))('behavior: removes the buyer’s %s', (name) => {
  expect(toUpstream({ [name]: '1' })).toEqual(ours)
})

test.each(['Bearer of-the-upstream', 'ApiKey 7', 'token'])(
  'behavior: passes on Authorization: %s, which the buyer sends to the upstream',
  (authorization) => expect(toUpstream({ authorization })).toEqual({ authorization, ...ours }),
)

test.each([
  ['a payment', 'x402 macaroon:payload'],
  ['a payment in another spelling', 'Tollkeeper macaroon:payload'],
  ['credentials that a browser adds by itself', 'Basic YTpi'],
  ['credentials that a browser negotiates by itself', 'NEGOTIATE abc'],
  ['a provider’s key', 'Bearer tk_1'],
  ['an operator’s key', 'bearer  tko_1'],
])('behavior: removes the buyer’s Authorization if it contains %s', (_, authorization) => {
  expect(toUpstream({ authorization })).toEqual(ours)
})

test.each(['Basic YTpi', 'basic dXNlcjpwYXNz', 'Bearer of-the-upstream'])(
  'passes on Authorization: %s if callers log in to the upstream',
  (authorization) => {
    expect(toUpstream({ authorization }, null, true)).toEqual({ authorization, ...ours })
  },
)

test.each([
  ['a payment', 'x402 macaroon:payload'],
  ['a provider’s key', 'Bearer tk_1'],
  ['a gateway key as the user name of Basic', `Basic ${btoa('tk_1:')}`],
  ['a gateway key as the password of Basic', `Basic ${btoa('me:tko_1')}`],
  ['Basic that is not base64', 'Basic a:b'],
  ['a scheme that signs the URL', 'Digest username="a"'],
  ['a scheme that logs in the connection', 'NTLM abc'],
])(
  'removes the buyer’s Authorization if it contains %s, even if callers log in to the upstream',
  (_, authorization) => {
    expect(toUpstream({ authorization }, null, true)).toEqual(ours)
  },
)

test('behavior: removes the buyer’s headers that its Connection header names, but none of the headers that the gateway adds', () => {
  const given = { connection: 'close, X-Secret ,service-upstream-secret', 'x-secret': '1', 'x-other': '2' }
  expect(toUpstream(given)).toEqual({ 'x-other': '2', ...ours })
})

test('behavior: sends a body with the gateway’s own Content-Length, and without the buyer’s Content-Length and Transfer-Encoding', () => {
  expect(toUpstream({ 'content-length': '7' }, 5)).toEqual({ 'content-length': '5', ...ours })
  expect(toUpstream({ 'transfer-encoding': 'chunked' }, 5)).toEqual({ 'content-length': '5', ...ours })
  expect(toUpstream({ 'content-length': '5' })).toEqual(ours)
})

const toBuyer = (given: NodeJS.Dict<string[]>, path = '/v2/forecast') => {
  const base = new URL('https://origin.example/v2')
  const passed = responseHeaders(given, { requested: new URL(path, base), base, publicUrl })
  const {
    'content-security-policy': policy,
    'x-content-type-options': sniffing,
    ...others
  } = Object.fromEntries(passed)
  expect(sniffing).toBe('nosniff')
  expect(policy).toBe("sandbox; default-src 'none'")
  return others
}

test('default: passes on the upstream’s headers that describe the content', () => {
  const given = {
    'cache-control': ['max-age=60'],
    'content-encoding': ['br'],
    'content-length': ['7'],
    'content-type': ['text/csv'],
    etag: ['"1"'],
    link: ['</a>; rel=next', '</b>; rel=prev'],
    'x-ratelimit-left': ['3'],
  }
  expect(toBuyer(given)).toEqual({
    ...Object.fromEntries(Object.entries(given).map(([name, values]) => [name, values.join(', ')])),
  })
})

test.each([
  // The browser would apply these headers to the whole origin, which all providers share.
  ...['access-control-allow-origin', 'clear-site-data', 'content-security-policy', 'nel', 'report-to'],
  'x-content-type-options',
  ...['service-worker-allowed', 'set-cookie', 'strict-transport-security', 'www-authenticate'],
  // Servers in front of us or behind us would act on these headers.
  ...[
    'alt-svc',
    'cdn-cache-control',
    'surrogate-control',
    'x-accel-redirect',
    'x-hono-already-sent',
    'x-sendfile',
  ],
  // These headers are about the connection.
  ...['connection', 'keep-alive', 'proxy-authenticate', 'trailer', 'transfer-encoding', 'upgrade'],
  // These headers are about the payment.
  ...[
    'payment-required',
    'payment-response',
    'service-payment-id',
    'service-payment-status',
    'service-receipt',
  ],
  'x-payment-response',
])('behavior: removes the upstream’s %s', (name) => {
  expect(toBuyer({ [name]: ['1'] })).toEqual({})
})

test('behavior: removes the upstream’s headers that its Connection header names', () => {
  expect(toBuyer({ connection: ['X-Secret, close'], 'x-secret': ['1'], etag: ['2'] })).toEqual({ etag: '2' })
})

test.each([
  ['/v2/other?a=1', 'https://gateway.example/p/prov_1/other?a=1'],
  ['other', 'https://gateway.example/p/prov_1/other'],
  ['https://origin.example/v2', 'https://gateway.example/p/prov_1'],
  ['/v22/other', 'https://origin.example/v22/other'],
  ['/login', 'https://origin.example/login'],
  ['https://elsewhere.example/', 'https://elsewhere.example/'],
])('behavior: if the upstream redirects to %s, the buyer is redirected to %s', (location, expected) => {
  expect(toBuyer({ location: [location] })).toEqual({ location: expected })
})
