import { attenuateMacaroon, mintMacaroon, parseMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import { type Address, type Hex, toHex } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  type Change,
  call,
  fetchChallenge,
  platformWallet,
  signedBody,
  type VerifyBody,
} from '../test/support/gateway.ts'
import { useGateway, useShop } from '../test/support/useGateway.ts'
import { hmacSha256 } from './http/hmac.ts'

const gateway = useGateway()
const shop = useShop(gateway)
const other = useShop(gateway)
let payer: PrivateKeyAccount

beforeAll(async () => {
  payer = await gateway.buyer(1_000_000_000n)
})

const tables = [
  'provider',
  'api_key',
  'wallet',
  'endpoint',
  'payer',
  'payment',
  'signed_authorization',
  'presentation',
  'outbox',
]

/** Reads everything in our tables that a request could have written. */
async function written(): Promise<unknown> {
  const { database } = gateway
  const counts = await Promise.all(
    tables.map(async (table) => {
      const [row] = await database<{ count: bigint }[]>`select count(*) from ${database(table)}`
      return [table, row?.count]
    }),
  )
  const [totals] = await database`select coalesce(sum(accepted_total), 0) as total from payer`
  return [...counts, totals]
}

let before: unknown
beforeEach(async () => {
  before = await written()
})

type Request = { method: string; path: string } & Parameters<typeof call>[3]

async function expectProblem(request: Request, status: number, code: string): Promise<void> {
  const { method, path, ...options } = request
  const answer = await call(gateway.app, method, path, options)
  expect({ status: answer.status, code: answer.body.code }).toEqual({ status, code })
  expect(answer.headers.get('content-type')).toBe('application/problem+json')
  expect(answer.body).toMatchObject({ status, title: expect.any(String), detail: expect.any(String) })
  expect(JSON.stringify(answer.body)).not.toMatch(/\.ts:|node_modules|\bat \S+ \(/)
  if (path === '/verify') expect(answer.body.verified).toBe(false)
  expect(await written()).toEqual(before)
}

const verify = (json: unknown) => ({ method: 'POST', path: '/verify', json })

describe('bodies', () => {
  const cases: [string, Partial<Request>, number, string][] = [
    ['malformed JSON', { text: '{"name":' }, 400, 'invalid_json'],
    ['missing fields', { json: {} }, 400, 'invalid_request'],
    ['JSON that is not an object', { json: [1] }, 400, 'invalid_request'],
    ['1 MB', { json: { name: 'x'.repeat(1_000_000) } }, 413, 'payload_too_large'],
    [
      'a compressed body',
      {
        text: '{}',
        headers: { 'content-type': 'application/json', 'content-length': '2', 'content-encoding': 'gzip' },
      },
      415,
      'unsupported_media_type',
    ],
    [
      'another media type',
      { text: 'name=x', headers: { 'content-type': 'text/plain' } },
      415,
      'unsupported_media_type',
    ],
  ]
  test.each(cases)('error: rejects %s on each route that reads a body', async (_, body, status, code) => {
    for (const path of ['/providers', '/challenge', '/verify'])
      await expectProblem({ method: 'POST', path, ...body }, status, code)
  })
  test('error: rejects 1 MB without a Content-Length', async () => {
    const chunk = new TextEncoder().encode('x'.repeat(10_000))
    let chunks = 0
    const body = new ReadableStream({
      pull: (controller) => (++chunks > 100 ? controller.close() : controller.enqueue(chunk)),
    })
    const init = { method: 'POST', body, duplex: 'half', headers: { 'content-type': 'application/json' } }
    const response = await gateway.app.request('/verify', init as RequestInit)
    expect(response.status).toBe(413)
    expect(chunks).toBeLessThan(10)
    expect(await written()).toEqual(before)
  })
  test('error: answers 404 for an unknown route', async () => {
    await expectProblem({ method: 'GET', path: '/nothing' }, 404, 'not_found')
  })
})

describe('payloads', () => {
  const highS = (signature: string): string => {
    const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
    const s = toHex(order - BigInt(`0x${signature.slice(66, 130)}`), { size: 32 }).slice(2)
    return `${signature.slice(0, 66)}${s}${signature.endsWith('1b') ? '1c' : '1b'}`
  }
  /** Changes one letter to upper case, which almost never gives a valid EIP-55 checksum. */
  const withWrongChecksum = (address: string) => address.replace(/[a-f]/, (digit) => digit.toUpperCase())
  /** Changes one part of a payload. */
  const withPart = (index: number, change: (part: string) => string) => (payload: string) => {
    const parts = payload.split(',')
    return parts.with(index, change(parts[index] ?? '')).join(',')
  }

  const malformed: Record<string, (payload: string) => string> = {
    'six parts': (payload) => payload.split(',').slice(0, 6).join(','),
    'eight parts': (payload) => `${payload},0`,
    'a wrong address checksum': withPart(0, withWrongChecksum),
    'a negative value': withPart(2, () => '-1'),
    'a fractional value': withPart(2, () => '1.5'),
    'a hex value': withPart(2, () => '0xb98c'),
    'a value over uint256': withPart(2, () => `${2n ** 256n}`),
    'a value of 2^64': withPart(2, () => `${2n ** 64n}`),
    'validAfter of 2^40': withPart(3, () => `${2n ** 40n}`),
    'validBefore of 2^40': withPart(4, () => `${2n ** 40n}`),
    'an uppercase 0X': withPart(5, (nonce) => nonce.replace('0x', '0X')),
    'a short nonce': withPart(5, (nonce) => nonce.slice(0, -2)),
    'a signature of 63 bytes': (payload) => payload.slice(0, -4),
    'a signature of 1,025 bytes': withPart(6, () => `0x${'ab'.repeat(1_025)}`),
    'no parts': () => '',
  }
  const badlySigned: typeof malformed = {
    'a signature of 66 bytes': (payload) => `${payload}00`,
    'a high s': withPart(6, highS),
    'v of 2': (payload) => `${payload.slice(0, -2)}02`,
    'a value other than the signed one': withPart(2, () => '48000'),
  }
  const expectRefused = async (
    change: (payload: string) => string,
    ...problem: [status: number, code: string]
  ) => {
    for (const half of [0, 1] as const) {
      const body = await signedBody(gateway, shop, payer)
      const payloads = body.payloads.with(half, change(body.payloads[half]))
      await expectProblem(verify({ ...body, payloads }), ...problem)
    }
  }
  test.each(Object.entries(malformed))(
    'error: rejects %s in either payload as malformed',
    async (_, change) => {
      await expectRefused(change, 400, 'invalid_payload')
    },
  )
  test.each(Object.entries(badlySigned))(
    'error: rejects %s in either payload as badly signed',
    async (_, change) => {
      await expectRefused(change, 402, 'invalid_signature')
    },
  )

  test.each([0, 3])('error: rejects %i payloads', async (count) => {
    const body = await signedBody(gateway, shop, payer)
    const payloads = [...body.payloads, body.payloads[0]].slice(0, count)
    const answer = await call(gateway.app, 'POST', '/verify', { json: { ...body, payloads } })
    expect([400, 422]).toContain(answer.status)
    expect(await written()).toEqual(before)
  })

  const now = () => BigInt(Math.floor(Date.now() / 1000))
  const stranger = privateKeyToAccount(generatePrivateKey())
  const nonce = toHex(7, { size: 32 })
  const from = stranger.address.toLowerCase() as Address
  const signedWrongly: Record<string, [changes: [Change, Change], code: string]> = {
    'two payers': [[{}, { from, signer: stranger }], 'payer_mismatch'],
    'the same nonce in both': [[{ nonce }, { nonce }], 'nonce_reused'],
    "a stranger's signature of the first payload": [[{ signer: stranger }, {}], 'invalid_signature'],
    "a stranger's signature of the second payload": [[{}, { signer: stranger }], 'invalid_signature'],
    'one unit less for the provider': [[{ value: 47_499n }, {}], 'amount_too_low'],
    'one unit less for the platform': [[{}, { value: 2_499n }], 'amount_too_low'],
  }
  test.each(Object.entries(signedWrongly))(
    'error: rejects two payloads with %s',
    async (_, [changes, code]) => {
      await expectProblem(verify(await signedBody(gateway, shop, payer, changes)), 402, code)
    },
  )

  test.each<[string, number, string, (body: VerifyBody) => object]>([
    [
      "one payload that is only the provider's part",
      402,
      'payees_mismatch',
      (body) => ({ ...body, payloads: [body.payloads[0]] }),
    ],
    ['two payloads without a macaroon', 422, 'invalid_field', ({ macaroon: _, ...body }) => body],
    [
      'two payloads in the wrong order',
      402,
      'payees_mismatch',
      (body) => ({ ...body, payloads: body.payloads.toReversed() }),
    ],
  ])('error: rejects %s', async (_, status, code, change) => {
    await expectProblem(verify(change(await signedBody(gateway, shop, payer))), status, code)
  })

  test.each([
    ['that has expired', () => ({ validBefore: now() - 1n }), 'authorization_expired'],
    ['that ends too soon', () => ({ validBefore: now() + 265n }), 'authorization_expires_too_soon'],
    ['that has not begun', () => ({ validAfter: now() + 60n }), 'authorization_not_yet_valid'],
  ])('error: rejects a validity window %s', async (_, change, code) => {
    await expectProblem(verify(await signedBody(gateway, shop, payer, [change(), {}])), 402, code)
    await expectProblem(verify(await signedBody(gateway, shop, payer, [{}, change()])), 402, code)
  })
  test('error: rejects a payment that exceeds the payer’s balance', async () => {
    const poor = await gateway.buyer(49_999n)
    await expectProblem(verify(await signedBody(gateway, shop, poor)), 402, 'insufficient_balance')
  })
})

describe('macaroons', () => {
  test('error: rejects an expired macaroon', async () => {
    const body = await signedBody(gateway, shop, payer)
    gateway.setNow(Date.now() + 301_000)
    await expectProblem(verify(body), 402, 'macaroon_expired')
  })
  test('error: rejects a macaroon with any single bit flipped', async () => {
    const body = await signedBody(gateway, shop, payer)
    const bytes = Buffer.from(body.macaroon, 'base64url')
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const flipped = Buffer.from(bytes)
      flipped[bit >> 3] = (flipped[bit >> 3] as number) ^ (1 << (bit & 7))
      const { status, body: problem } = await call(gateway.app, 'POST', '/verify', {
        json: { ...body, macaroon: flipped.toString('base64url') },
      })
      expect([bit, status, problem.verified]).toEqual([bit, 402, false])
    }
    expect(await written()).toEqual(before)
  })
  test('error: rejects a macaroon from which a caveat was removed', async () => {
    const body = await signedBody(gateway, shop, payer)
    const bytes = Buffer.from(body.macaroon, 'base64url')
    const { caveatBytes } = parseMacaroon(body.macaroon)
    for (const caveat of caveatBytes) {
      // A caveat is encoded as type (1 byte), length (1 byte), the caveat's bytes, and an end-of-section byte.
      const at = bytes.indexOf(caveat) - 2
      const without = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + caveat.length + 3)])
      await expectProblem(
        verify({ ...body, macaroon: without.toString('base64url') }),
        402,
        'macaroon_invalid',
      )
    }
  })
  test('error: rejects a macaroon with an unknown caveat', async () => {
    const body = await signedBody(gateway, shop, payer)
    const { identifier, caveatBytes, signature } = parseMacaroon(body.macaroon)
    const caveat = Buffer.from('colour = blue')
    const field = (type: number, data: Uint8Array) =>
      data.length < 128
        ? Buffer.from([type, data.length, ...data])
        : Buffer.from([type, (data.length & 127) | 128, data.length >> 7, ...data])
    const macaroon = Buffer.concat([
      Buffer.from([2]),
      field(2, identifier),
      Buffer.from([0]),
      ...[...caveatBytes, caveat].map((data) => Buffer.concat([field(2, data), Buffer.from([0])])),
      Buffer.from([0]),
      field(6, hmacSha256(signature, caveat)),
    ]).toString('base64url')
    await expectProblem(verify({ ...body, macaroon }), 402, 'unknown_caveat')
  })
  test('error: rejects a macaroon of another gateway', async () => {
    const body = await signedBody(gateway, shop, payer)
    const { terms } = parseMacaroon(body.macaroon)
    const caveats = { providerId: shop.providerId, endpointId: shop.endpointId, expiry: terms.mintedAt + 300 }
    for (const kid of ['test', 'theirs']) {
      const secret = { kid, key: Buffer.alloc(32, 8) }
      const macaroon = mintMacaroon({ secret, terms, caveats, hmac: hmacSha256 })
      await expectProblem(verify({ ...body, macaroon }), 402, 'macaroon_invalid')
    }
  })
  test('error: rejects a macaroon for another provider or endpoint', async () => {
    const body = await signedBody(gateway, shop, payer)
    await expectProblem(verify({ ...body, providerId: other.providerId }), 402, 'caveat_mismatch')
    await expectProblem(verify({ ...body, endpointId: other.endpointId }), 402, 'caveat_mismatch')
  })
  test('error: rejects a macaroon with a caveat that excludes this payment', async () => {
    const body = await signedBody(gateway, shop, payer)
    const narrowed = (caveats: Parameters<typeof attenuateMacaroon>[1]): VerifyBody => ({
      ...body,
      macaroon: attenuateMacaroon(body.macaroon, caveats, hmacSha256),
    })
    await expectProblem(verify(narrowed({ payer: platformWallet })), 402, 'caveat_mismatch')
    await expectProblem(verify(narrowed({ maxAmount: 49_999n })), 402, 'caveat_mismatch')
    await expectProblem(
      verify(narrowed({ expiry: Math.floor(Date.now() / 1000) - 1 })),
      402,
      'macaroon_expired',
    )
  })
  test('error: rejects a challenge below the currently requested price', async () => {
    const body = await signedBody(gateway, shop, payer)
    await expectProblem(
      verify({ ...body, pricing: { usdcPerUnit: '0.050001' } }),
      402,
      'challenge_price_too_low',
    )
  })
})

describe('challenges', () => {
  const challenge = (json: unknown) => ({ method: 'POST', path: '/challenge', json })
  test('error: rejects an unknown provider or endpoint', async () => {
    const { providerId, endpointId } = shop
    const nobody = `prov_${'0'.repeat(32)}`
    await expectProblem(challenge({ providerId: nobody, endpointId }), 404, 'unknown_provider')
    await expectProblem(challenge({ providerId, endpointId: other.endpointId }), 404, 'unknown_endpoint')
    await expectProblem(
      { method: 'GET', path: `/challenge?providerId=${providerId}&endpointId=ep_x` },
      404,
      'unknown_endpoint',
    )
    await expectProblem(
      { method: 'GET', path: `/challenge?providerId=${providerId}` },
      400,
      'invalid_request',
    )
  })
  test.each([
    ['0.049999', 'price_below_registered'],
    [0.04, 'price_below_registered'],
    ['0', 'price_below_minimum'],
    ['0.0500001', 'invalid_field'],
    ['-1', 'invalid_field'],
    [5e-7, 'invalid_field'],
    ['18446744073709.551616', 'invalid_field'],
    ['99999999999999', 'invalid_field'],
    ['1e3', 'invalid_field'],
  ])('error: rejects a price of %s', async (usdcPerUnit, code) => {
    const { providerId, endpointId } = shop
    await expectProblem(challenge({ providerId, endpointId, pricing: { usdcPerUnit } }), 422, code)
  })
  test('error: rejects unknown and unserved networks', async () => {
    const { providerId, endpointId } = shop
    await expectProblem(challenge({ providerId, endpointId, network: 'solana' }), 422, 'unknown_network')
    await expectProblem(challenge({ providerId, endpointId, network: 'base' }), 422, 'network_not_served')
  })
  test('error: rejects missing, malformed and unknown resources', async () => {
    const { providerId } = shop
    await expectProblem(challenge({ providerId }), 400, 'invalid_request')
    for (const resource of ['forecast', '/a/../forecast', 'ftp://a.example/forecast'])
      await expectProblem(challenge({ providerId, resource }), 422, 'invalid_field')
    await expectProblem(challenge({ providerId, resource: '//a.example/forecast' }), 404, 'unknown_endpoint')
    await expectProblem(
      challenge({ providerId, resource: 'https://a.example/else' }),
      404,
      'unknown_endpoint',
    )
  })
})

describe('registration', () => {
  const under = (path: string, json: unknown, key = shop.key) => ({
    method: 'POST',
    path: `/providers/${shop.providerId}${path}`,
    json,
    key,
  })
  test('error: rejects missing and unknown keys, and another provider’s key', async () => {
    const path = `/providers/${shop.providerId}`
    await expectProblem({ method: 'GET', path }, 401, 'unauthorized')
    await expectProblem(
      { method: 'GET', path, key: `tk_${'0'.repeat(32)}_${'A'.repeat(43)}` },
      401,
      'unauthorized',
    )
    await expectProblem({ method: 'GET', path, key: `${shop.key.slice(0, -1)}~` }, 401, 'unauthorized')
    await expectProblem({ method: 'GET', path, key: other.key }, 403, 'forbidden')
  })
  test('error: rejects payees that cannot be paid', async () => {
    const { token, deployment } = gateway.served
    for (const address of [
      `0x${'0'.repeat(40)}`,
      ...[token, deployment.batchSettlement, deployment.splitterFactory, deployment.tabSettlement],
      platformWallet,
    ]) {
      await expectProblem(under('/wallets', { network: 'localhost', address }), 422, 'payee_refused')
    }
  })
  test('error: rejects duplicate wallets, malformed addresses and unknown networks', async () => {
    const address = shop.wallet
    await expectProblem(under('/wallets', { network: 'localhost', address }), 409, 'wallet_exists')
    await expectProblem(under('/wallets', { network: 'localhost', address: '0x12' }), 400, 'invalid_request')
    await expectProblem(under('/wallets', { network: 'solana', address }), 422, 'unknown_network')
  })
  test('error: rejects invalid and duplicate endpoints', async () => {
    const good = { url: `${shop.url}/2`, pricing: { usdcPerUnit: '0.05' } }
    await expectProblem(under('/endpoints', { ...good, walletId: other.walletId }), 404, 'unknown_wallet')
    await expectProblem(under('/endpoints', { ...good, network: 'base' }), 422, 'network_not_served')
    await expectProblem(under('/endpoints', { ...good, url: 'ftp://a.example' }), 422, 'invalid_field')
    await expectProblem(under('/endpoints', { ...good, method: 'FETCH' }), 422, 'invalid_field')
    await expectProblem(
      under('/endpoints', { ...good, pricing: { usdcPerUnit: '0' } }),
      422,
      'price_below_minimum',
    )
    const tooMuch = { ...good, pricing: { usdcPerUnit: '18446744073709.551616' } }
    await expectProblem(under('/endpoints', tooMuch), 422, 'invalid_field')
    await expectProblem(
      under('/endpoints', { ...good, url: shop.url, method: 'GET' }),
      409,
      'endpoint_exists',
    )
  })
})

describe('views', () => {
  const get = (path: string) => ({ method: 'GET', path })
  const unknown = `0x${'12'.repeat(20)}`
  test.each([
    ['/settlements/status', 400, 'invalid_request'],
    ['/settlements/status?wallet=0x12', 400, 'invalid_request'],
    [`/settlements/status?wallet=${unknown}`, 404, 'unknown_wallet'],
    ['/settlements/batches', 400, 'invalid_request'],
    ['/settlements/batches?tx_hash=0x12', 400, 'invalid_request'],
    [`/settlements/batches?wallet=${unknown}`, 404, 'unknown_wallet'],
    [`/settlements/export?wallet=${unknown}&start=2026-01-01&end=2026-01-02`, 404, 'unknown_wallet'],
    ['/network?network=base', 422, 'network_not_served'],
    ['/network?interval=hour', 422, 'invalid_field'],
    ['/network/batches?keeper=0x12', 400, 'invalid_request'],
    ['/network/batches?from=yesterday', 400, 'invalid_request'],
    ['/network/batches?limit=101', 422, 'invalid_field'],
    ['/payments/pay_1', 404, 'unknown_payment'],
    ['/receipts/pay_1', 404, 'unknown_payment'],
  ])('error: answers %s with %i %s', async (path, status, code) => {
    await expectProblem(get(path), status, code)
  })
  test.each([
    ['limit=0', 422, 'invalid_field'],
    ['limit=101', 422, 'invalid_field'],
    ['limit=-1', 422, 'invalid_field'],
    ['limit=abc', 400, 'invalid_request'],
    ['limit=1.5', 400, 'invalid_request'],
    ['cursor=abc', 400, 'invalid_cursor'],
    ['network=solana', 422, 'unknown_network'],
    ['network=base', 422, 'network_not_served'],
  ])('error: rejects a list of batches with %s', async (query, status, code) => {
    await expectProblem(get(`/settlements/batches?wallet=${shop.wallet}&${query}`), status, code)
  })
  test.each([
    ['start=2026-01-02&end=2026-01-01', 422, 'invalid_date_range'],
    ['start=2026-02-30&end=2026-03-01', 400, 'invalid_request'],
    ['start=yesterday&end=2026-03-01', 400, 'invalid_request'],
    ['start=2026-01-01', 400, 'invalid_request'],
    ['start=2026-01-01&end=2026-01-02&format=pdf', 422, 'invalid_field'],
  ])('error: rejects an export with %s', async (query, status, code) => {
    await expectProblem(get(`/settlements/export?wallet=${shop.wallet}&${query}`), status, code)
  })
})

test('default: accepts the valid request that these tests vary', async () => {
  const challenge = await fetchChallenge(gateway.app, shop)
  expect(challenge.accepts[0].payTo satisfies Hex).toBe(shop.wallet)
  const { status } = await call(gateway.app, 'POST', '/verify', {
    json: await signedBody(gateway, shop, payer),
  })
  expect(status).toBe(200)
  expect(await written()).not.toEqual(before)
})
