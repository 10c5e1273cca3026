import { createHash } from 'node:crypto'
import { x402HTTPClient } from '@x402/core/client'
import jsqr from 'jsqr'
import { describe, expect, test } from 'vitest'
import { answerJson, challengeFor } from '../../test/playProvider.ts'
import { serve } from '../../test/serve.ts'
import { mockOptions, paymentSignature } from '../../test/signedPayment.ts'
import { type Challenge, challengeMediaType, parseChallenge } from '../protocol/challenge.ts'
import type { GateAnswer } from './decision.ts'
import { createGate, type GateOptions } from './gate.ts'
import type { PageFacts } from './pageFacts.ts'
import { pageStyle } from './pageHtml.ts'

// Tests the page of a 402, including hostile input. test/e2e/page.test.ts opens the page in a browser. conformance.test.ts tests it in each
// framework.

/** The `Accept` header that Chrome sends when it navigates. */
const navigation = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8'
const resource = 'https://api.example/weather?city=1&day=2'

type Question = {
  challenge?: Partial<Challenge> & { resource?: string; description?: string; network?: string }
  options?: Partial<GateOptions>
  headers?: { accept?: string; paymentSignature?: string; authorization?: string }
  method?: string
}

async function ask({ challenge: changes = {}, options, headers, method = 'GET' }: Question = {}) {
  const { resource: url = resource, description, network, ...others } = changes
  const challenge = challengeFor(url, others)
  for (const entry of challenge.accepts) {
    if (description !== undefined) entry.description = description
    if (network !== undefined) entry.network = network
  }
  const gatewayUrl = await serve((request, response) =>
    request.url === '/challenge'
      ? answerJson(response, 200, challenge)
      : answerJson(response, 402, { code: 'insufficient_balance' }),
  )
  const gate = createGate({ gatewayUrl, providerId: 'prov_1', pricing: { usdcPerUnit: '0.05' }, ...options })
  const decision = await gate.check({ method, url, accept: navigation, ...headers })
  if (decision.kind !== 'answer') throw new Error('Expected an answer')
  return decision.answer
}

const isPage = ({ headers }: GateAnswer) => headers['Content-Type'] === 'text/html; charset=utf-8'
/** Returns the text of the page that a person reads. */
const wordsOf = ({ body }: GateAnswer) =>
  body
    .replace(/<(style|title)>.*?<\/\1>/gs, ' ')
    .replace(/<[^>]*>/g, ' ')
    .replace(/&lt;|&gt;|&quot;|&#39;|&amp;/g, (entity) => unescaped[entity] ?? '')
    .replace(/\s+/g, ' ')
const unescaped: Record<string, string> = {
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
  '&amp;': '&',
}

test('shows the provider’s name, the price including the fee, what it buys and how to pay', async () => {
  const seller = { name: 'Weather Office' }
  const answer = await ask({ challenge: { seller, description: 'The forecast of a city' } })
  expect([answer.status, isPage(answer)]).toEqual([402, true])
  const words = wordsOf(answer)
  for (const part of [
    'Weather Office · api.example',
    'This costs 0.05 USDC',
    'The forecast of a city',
    '0.05 USDC per request, including all fees',
    `GET ${resource}`,
    'base. Your wallet needs USDC on this network',
    `npx --no-install tollkeeper buy --max 0.05 "${resource}"`,
    'GATEWAY_URL=https://gateway.example',
    '"--allow-host", "api.example"',
    'Any x402 client can pay',
    'settled by gateway.example',
  ])
    expect(words).toContain(part)
  expect(answer.body).toContain('<title>0.05 USDC · Weather Office</title>')
  expect(answer.body).toContain(`aria-label="QR code of https://api.example/weather?city=1&amp;day=2"`)
})

test('is a single document that loads nothing, runs no script and is not cached', async () => {
  const { headers, body } = await ask({ options: { payPage: 'https://pay.example/' } })
  const hash = createHash('sha256').update(pageStyle).digest('base64')
  expect(headers).toMatchObject({
    'Cache-Control': 'no-store',
    Vary: 'Accept',
    'Content-Security-Policy': `default-src 'none';style-src 'sha256-${hash}';img-src data:;base-uri 'none';form-action 'none';frame-ancestors 'none'`,
  })
  expect(body).not.toMatch(/<script|<form|<iframe|<img|<object|\son\w+=|\sstyle=|url\(|@import|\ssrc=/i)
  expect([...body.matchAll(/\shref="([^"]*)"/g)].map(([, href]) => href)).toEqual([
    'data:,',
    `https://pay.example/?url=${encodeURIComponent(resource)}`,
  ])
})

describe('text from third parties', () => {
  const hostile = '<script>alert(1)</script>"\'><img src=x onerror=alert(1)>'

  test.each<[string, NonNullable<Question['challenge']>]>([
    ['the provider’s name', { seller: { name: hostile } }],
    ['the description', { description: hostile }],
    ['the path', { resource: `https://api.example/${hostile}` }],
    ['the query', { resource: `https://api.example/weather?q=${hostile}` }],
    ['the network', { network: hostile }],
    ['the listing', { seller: { name: 'a', listing: `https://gateway.example/${hostile}` } }],
  ])('is escaped in %s', async (_, challenge) => {
    const { body } = await ask({ challenge })
    const ordinary = { name: 'a', listing: 'https://gateway.example/a' }
    const plain = (await ask({ challenge: { seller: ordinary, description: 'a' } })).body
    const tagsOf = (html: string) => new Set([...html.matchAll(/<\/?([a-z0-9]+)/gi)].map(([, tag]) => tag))
    expect([...tagsOf(body)].filter((tag) => !tagsOf(plain).has(tag))).toEqual([])
    expect(body).not.toMatch(/<script|<img/i)
  })

  test('can’t change the direction of writing, and is limited in length', async () => {
    const name = `\u202eevil\u2066\u200f\u0000\r\n${'x'.repeat(500)}`
    const { body } = await ask({ challenge: { seller: { name }, description: `\u202e${name}` } })
    expect(body).not.toMatch(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/)
    expect(body).not.toContain('\0')
    expect(body).toContain('<bdi>evil x')
    expect(body).not.toContain('x'.repeat(301))
    const path = await ask({ challenge: { resource: 'https://api.example/a%E2%80%AEb/\u202ec' } })
    expect(path.body).not.toContain('\u202e')
  })

  test.each([
    ['a URL of another origin', 'https://evil.example/'],
    ['a URL that runs a script', 'javascript:alert(1)'],
    ['a URL that disguises its host', 'https://gateway.example@evil.example/'],
    ['not a URL', 'market'],
  ])('is not linked if the listing is %s', async (_, listing) => {
    const { body } = await ask({ challenge: { seller: { name: 'a', listing } } })
    expect(body).not.toContain('<a ')
  })

  test('is linked if the listing is on the gateway’s own market', async () => {
    const listing = 'https://gateway.example/dashboard/#/market/0x1/https%3A%2F%2Fapi.example%2Fweather'
    const { body } = await ask({ challenge: { seller: { name: 'a', listing } } })
    expect(body).toContain(`<a href="${listing}">`)
  })

  test.each(['$(touch x)', '`touch x`', '"; touch x; "', '\\"; touch x', '!!', "'; touch x; '", '&calc&'])(
    'stays within one quoted word of the shown command if the URL’s query contains %s',
    async (query) => {
      const words = wordsOf(await ask({ challenge: { resource: `https://api.example/weather?q=${query}` } }))
      const [, quoted = ''] = /buy --max 0\.05 (".*?") Runs/.exec(words) ?? []
      expect(quoted).toMatch(/^"[^"$\\`!]*"$/)
      expect(new URL(quoted.slice(1, -1)).searchParams.get('q')).toBe(query.split('&')[0])
    },
  )

  test.each([
    ['the network', { network: 'base; touch x' }],
    ['the issuer', { issuer: 'https://gateway.example/$(touch-x)' }],
  ])('prevents the command from being shown if %s isn’t a single word', async (_, challenge) => {
    const answer = await ask({ challenge })
    expect(answer.body).not.toContain('<pre>')
  })
})

describe('the choice between page and JSON', () => {
  test('gives an x402 client that asks for HTML the same header as with JSON, so that it can pay', async () => {
    const page = await ask()
    const json = await ask({ headers: { accept: '*/*' } })
    expect([isPage(page), isPage(json), json.headers.Vary]).toEqual([true, false, 'Accept'])
    const header = page.headers['PAYMENT-REQUIRED'] ?? ''
    expect(header).toBe(json.headers['PAYMENT-REQUIRED'])
    const client = new x402HTTPClient({} as never)
    const read = client.getPaymentRequiredResponse((name) => (name === 'PAYMENT-REQUIRED' ? header : null))
    expect(read.accepts[0]).toMatchObject({ scheme: 'exact', amount: '50000' })
  })

  test.each([
    ['fetch', { accept: '*/*' }],
    ['a program that accepts HTML and JSON equally', { accept: 'text/html, application/json' }],
    ['our SDK', { accept: `${navigation}, ${challengeMediaType}` }],
    ['a request whose payment is refused', { paymentSignature }],
    ['a mock payment if mock mode is off', { authorization: 'x402 mock:mock' }],
  ])('responds with JSON to %s', async (_, headers) => {
    const answer = await ask({ headers })
    expect([answer.status, isPage(answer)]).toEqual([402, false])
    parseChallenge(JSON.parse(answer.body))
  })

  test('responds to HEAD with the page’s headers, and shows the page to a visitor with a login', async () => {
    expect(isPage(await ask({ method: 'HEAD' }))).toBe(true)
    expect(isPage(await ask({ headers: { authorization: 'Bearer abc' } }))).toBe(true)
  })

  test('shows no page for an MCP tool', async () => {
    const answer = await ask({ challenge: { resource: 'mcp://tool/weather' } })
    expect([answer.status, isPage(answer)]).toEqual([402, false])
  })

  test('shows no command for a POST or for a tab, which the command doesn’t support', async () => {
    expect(wordsOf(await ask({ method: 'POST' }))).not.toContain('tollkeeper buy')
    const tab = {
      split: `0x${'0'.repeat(64)}` as const,
      rewardShare: 0,
      offeredUntil: 2,
      only: true as const,
    }
    const words = wordsOf(await ask({ challenge: { tab } }))
    expect(words).not.toContain('tollkeeper buy')
    expect(words).toContain('added up on a tab')
  })

  test('shows no QR code for a long URL, because a camera couldn’t read it', async () => {
    const { body } = await ask({ challenge: { resource: `https://api.example/${'a'.repeat(400)}` } })
    expect(body).not.toContain('<svg')
  })
})

/** Reads the page's QR code from its image, as a camera does. Each square has four pixels. */
function readCode({ body }: GateAnswer): string | undefined {
  const [, size = '', path = ''] = /<svg[^>]* viewBox="0 0 (\d+) \d+"[^>]*><path d="([^"]*)"/.exec(body) ?? []
  const width = 4 * Number(size)
  const pixels = new Uint8ClampedArray(4 * width * width).fill(255)
  for (const [, x, y, length] of path.matchAll(/M(\d+) (\d+)h(\d+)v1h-\d+z/g)) {
    for (let row = 4 * Number(y); row < 4 * Number(y) + 4; row++) {
      const start = 4 * (row * width + 4 * Number(x))
      for (let at = start; at < start + 16 * Number(length); at += 4) pixels.fill(0, at, at + 3)
    }
  }
  return jsqr.default(pixels, width, width)?.data
}

test.each([0, 40, 200])(
  'has a QR code that a camera can read, even if the URL has %i additional letters',
  async (more) => {
    const url = `https://api.example/weather?city=${'a'.repeat(more)}&day=%F0%9F%98%80`
    expect(readCode(await ask({ challenge: { resource: url } }))).toBe(url)
    const options = { payPage: 'https://pay.example/' }
    const page = await ask({ challenge: { resource: url }, options })
    expect(readCode(page)).toBe(`https://pay.example/?url=${encodeURIComponent(url)}`)
  },
)

test('states that testnet USDC has no value', async () => {
  expect(wordsOf(await ask({ challenge: { network: 'base-sepolia' } }))).toContain('has no real value')
  expect(wordsOf(await ask())).not.toContain('has no real value')
})

test('explains in mock mode how to try a payment', async () => {
  const gate = createGate(mockOptions)
  const decision = await gate.check({ method: 'GET', url: resource, accept: navigation })
  if (decision.kind !== 'answer') throw new Error('Expected an answer')
  const { status, headers, body } = decision.answer
  expect([status, headers['Content-Type']]).toEqual([402, 'text/html; charset=utf-8'])
  expect(body).toContain('Authorization: x402 mock:mock')
  expect(body).toContain('no USDC is involved')
  expect(body).not.toContain('PRIVATE_KEY')
})

describe('options', () => {
  test('page: false responds with JSON', async () => {
    const answer = await ask({ options: { page: false } })
    expect(isPage(answer)).toBe(false)
  })

  test('page: a function’s document is sent with a policy that blocks scripts', async () => {
    let facts: PageFacts | undefined
    const page = (given: PageFacts) => {
      facts = given
      return '<h1>ours</h1><script>alert(1)</script>'
    }
    const answer = await ask({ options: { page, payPage: 'https://pay.example/a?b=1' } })
    expect(answer.body).toBe('<h1>ours</h1><script>alert(1)</script>')
    expect(answer.headers['Content-Security-Policy']).toMatch(/^default-src 'none';style-src/)
    expect(answer.headers['Content-Security-Policy']).not.toContain('script-src')
    expect(facts).toMatchObject({
      price: '0.05',
      amount: 50_000n,
      seller: undefined,
      description: '',
      method: 'GET',
      url: resource,
      host: 'api.example',
      network: 'base',
      payUrl: `https://pay.example/a?b=1&url=${encodeURIComponent(resource)}`,
    })
  })

  test.each([
    [
      'throws',
      () => {
        throw new Error('no template')
      },
      'no template',
    ],
    ['returns no text', (() => Promise.reject(new Error('late'))) as never, 'object'],
  ])(
    'a function that %s is replaced by the default page, and its provider is warned',
    async (_, page, told) => {
      const warnings: string[] = []
      const answer = await ask({ options: { page, warn: (message) => warnings.push(message) } })
      expect(answer.body).toContain('This costs 0.05 USDC')
      expect(warnings.filter((warning) => warning.includes('page_failed'))).toEqual([
        expect.stringContaining(told),
      ])
    },
  )

  test.each(['javascript:alert(1)', '/pay', 'https://api.example@evil.example/'])(
    'payPage must be a URL that a page may link to, so %s is rejected',
    (payPage) => {
      const options = { gatewayUrl: 'https://gateway.example', providerId: 'prov_1', payPage }
      expect(() => createGate({ ...options, pricing: { usdcPerUnit: '0.05' } })).toThrow(/payPage/)
    },
  )
})

test('has a head that fits into nginx’ default buffer of 4,096 bytes, however long the fields for catalogs are', async () => {
  const lengths: number[] = []
  for (let length = 0; length <= 2_400; length += 20) {
    const bazaar = {
      info: { input: { type: 'http', method: 'GET' } },
      schema: { pattern: 'a'.repeat(length) },
    }
    const { headers } = await ask({ challenge: { discovery: { bazaar } } })
    const others = {
      Date: new Date(0).toUTCString(),
      Connection: 'keep-alive',
      'Keep-Alive': 'timeout=5',
      'Transfer-Encoding': 'chunked',
    }
    const lines = Object.entries({ ...headers, ...others }).map(([name, value]) => `${name}: ${value}\r\n`)
    lengths.push(`HTTP/1.1 402 Payment Required\r\n${lines.join('')}\r\n`.length)
  }
  // The longest head must be close to the limit, or the test would prove nothing.
  expect(Math.max(...lengths)).toBeGreaterThan(3_500)
  expect(Math.max(...lengths)).toBeLessThanOrEqual(3_700)
})
