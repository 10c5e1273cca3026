import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { parseAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { parseChallenge } from '@tollkeeper/sdk/protocol/challenge'
import { ProtocolError } from '@tollkeeper/sdk/protocol/errors'
import { parseMacaroon, verifyMacaroon } from '@tollkeeper/sdk/protocol/macaroon'
import { encodePayload, parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { call, fetchChallenge, signedBody, type VerifyBody } from '../test/support/gateway.ts'
import { useGateway, useShop } from '../test/support/useGateway.ts'
import { hmacSha256 } from './http/hmac.ts'
import { newOperatorKey } from './http/operator.ts'
import { Refusal } from './http/refusal.ts'

/*
 * Any invalid input is refused quickly and with an error code. FUZZ_RUNS is the number of cases per test; a long run uses 20000. FUZZ_SEED repeats
 * the cases of an earlier run. A failure prints its seed and the smallest failing case.
 */
const numRuns = Number(process.env.FUZZ_RUNS ?? 300)
const seed = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 31))
console.info(`fuzz: FUZZ_SEED=${seed} FUZZ_RUNS=${numRuns}`)
const runs = { numRuns, seed }

const operator = newOperatorKey()
const gateway = useGateway({ operatorKeyHashes: [Buffer.from(operator.hash, 'hex')] })
const shop = useShop(gateway)
let good: VerifyBody

beforeAll(async () => {
  good = await signedBody(gateway, shop, await gateway.buyer(1_000_000n))
})

/** Generates a valid text with a few changes, or arbitrary text. */
function nearly(text: string) {
  const change = fc.record({
    at: fc.nat({ max: text.length }),
    remove: fc.nat({ max: 3 }),
    insert: fc.oneof(
      fc.string({ maxLength: 4, unit: 'binary' }),
      fc.constantFrom(',', ':', '0x', '\0', '=', ' '),
    ),
  })
  const changed = fc
    .array(change, { minLength: 1, maxLength: 4 })
    .map((changes) =>
      changes.reduce(
        (now, { at, remove, insert }) => now.slice(0, at) + insert + now.slice(at + remove),
        text,
      ),
    )
  return fc.oneof(
    { weight: 4, arbitrary: changed },
    { weight: 1, arbitrary: fc.string({ maxLength: 5_000, unit: 'binary' }) },
    { weight: 1, arbitrary: fc.nat({ max: 40 }).map((times) => text.repeat(times)) },
  )
}

/**
 * Runs a codec and checks that it returns a value or throws one of our error classes, and that it takes less than a second of CPU time. A regular
 * expression that backtracks would take longer.
 */
function survives(codec: () => unknown): void {
  const began = process.cpuUsage()
  try {
    codec()
  } catch (error) {
    if (!(error instanceof ProtocolError || error instanceof Refusal)) throw error
  }
  expect(process.cpuUsage(began).user).toBeLessThan(1_000_000)
}

describe('codecs', () => {
  test('behavior: the parser of authorization headers survives any text', () => {
    const header = `x402 ${good.macaroon}:${good.payloads.join(':')}`
    fc.assert(
      fc.property(nearly(header), (text) => survives(() => parseAuthorizationHeader(text))),
      runs,
    )
  })

  test('behavior: the payload codec survives any text; a payload that it reads is written back unchanged, with its signature in canonical form', () => {
    const unsigned = (text: string) => text.toLowerCase().slice(0, text.lastIndexOf(','))
    fc.assert(
      fc.property(nearly(good.payloads[0]), (text) =>
        survives(() => {
          const written = encodePayload(parsePayload(text))
          expect(unsigned(written)).toBe(unsigned(text))
          expect(encodePayload(parsePayload(written))).toBe(written)
        }),
      ),
      runs,
    )
  })

  test('behavior: the macaroon parser survives any text; no changed macaroon verifies', () => {
    const options = {
      secrets: gateway.settings.macaroonSecrets,
      hmac: hmacSha256,
      now: Math.floor(Date.now() / 1000),
      request: {
        providerId: good.providerId,
        endpointId: good.endpointId,
        payer: parsePayload(good.payloads[0]).from,
        amount: 50_000n,
      },
    }
    expect(verifyMacaroon(good.macaroon, options).terms.amount).toBe(47_500n)
    fc.assert(
      fc.property(nearly(good.macaroon), (text) => {
        survives(() => parseMacaroon(text))
        if (text !== good.macaroon) expect(() => verifyMacaroon(text, options)).toThrow(ProtocolError)
      }),
      runs,
    )
  })

  test('behavior: the parsers of challenges and receipts survive any value', async () => {
    const challenge = await fetchChallenge(gateway.app, shop)
    const { body } = await call<{ receipt: string }>(gateway.app, 'POST', '/verify', { json: good })
    fc.assert(
      fc.property(fc.anything(), fc.constantFrom(...Object.keys(challenge)), (value, field) =>
        survives(() => parseChallenge({ ...challenge, [field]: value })),
      ),
      runs,
    )
    fc.assert(
      fc.property(nearly(body.receipt), (text) => survives(() => decodeReceipt(text))),
      runs,
    )
  })
})

describe('requests', () => {
  /** Checks that the status is below 500, and that an error has a code and no stack trace. */
  async function refusedOrAnswered(answer: Promise<{ status: number; body: Record<string, unknown> }>) {
    const { status, body } = await answer
    expect(status, JSON.stringify(body)).toBeLessThan(500)
    if (status >= 400) expect(body.code).toBeTypeOf('string')
    expect(JSON.stringify(body)).not.toMatch(/node_modules|\.ts:\d+/)
  }

  const json = fc.oneof(fc.jsonValue(), fc.dictionary(fc.string(), fc.jsonValue()))

  test('behavior: refuses invalid bodies of /verify', { timeout: 600_000 }, async () => {
    const field = fc.constantFrom('macaroon', 'payloads', 'providerId', 'endpointId', 'pricing')
    const body = fc.oneof(
      json,
      fc.tuple(field, json).map(([name, value]) => ({ ...good, [name]: value })),
      nearly(good.payloads[0]).map((payload) => ({ ...good, payloads: [payload, good.payloads[1]] })),
      nearly(good.macaroon).map((macaroon) => ({ ...good, macaroon })),
    )
    await fc.assert(
      fc.asyncProperty(body, (value) =>
        refusedOrAnswered(call(gateway.app, 'POST', '/verify', { json: value })),
      ),
      runs,
    )
    const accepted = await gateway.database`select id from payment`
    expect(accepted.length).toBe(1)
  })

  test('behavior: refuses bytes that are not JSON', { timeout: 600_000 }, async () => {
    const path = fc.constantFrom(
      '/verify',
      '/challenge',
      '/providers',
      `/providers/${shop.providerId}/endpoints`,
    )
    await fc.assert(
      fc.asyncProperty(path, fc.string({ maxLength: 2_000, unit: 'binary' }), (at, text) =>
        refusedOrAnswered(call(gateway.app, 'POST', at, { text, key: shop.key })),
      ),
      runs,
    )
  })

  test('behavior: refuses invalid bodies of /challenge and of the registry', {
    timeout: 600_000,
  }, async () => {
    const at = `/providers/${shop.providerId}`
    const goods: Record<string, object> = {
      '/challenge': { providerId: shop.providerId, endpointId: shop.endpointId },
      [`${at}/wallets`]: { network: 'localhost', address: shop.wallet },
      [`${at}/endpoints`]: { url: 'https://fuzz.example/', pricing: { usdcPerUnit: '0.05' } },
      [`${at}/webhooks`]: { url: 'https://fuzz.example/', events: ['payment.settled'] },
      [`${at}/keys`]: { label: 'fuzz' },
    }
    const request = fc.constantFrom(...Object.entries(goods)).chain(([path, body]) =>
      fc.tuple(
        fc.constant(path),
        fc
          .tuple(fc.constantFrom(...Object.keys(body)), json)
          .map(([name, value]) => ({ ...body, [name]: value })),
      ),
    )
    await fc.assert(
      fc.asyncProperty(request, ([path, body]) =>
        refusedOrAnswered(call(gateway.app, 'POST', path, { json: body, key: shop.key })),
      ),
      runs,
    )
  })

  test('behavior: refuses invalid queries and ids', { timeout: 600_000 }, async () => {
    const path = fc.constantFrom(
      '/challenge?providerId=',
      '/settlements/status?wallet=',
      '/settlements/batches?wallet=',
      `/settlements/batches?wallet=${shop.wallet}&cursor=`,
      `/settlements/batches?wallet=${shop.wallet}&limit=`,
      '/network/batches?keeper=',
      `/settlements/export?format=csv&wallet=${shop.wallet}&start=`,
      `/providers/${shop.providerId}/payments?cursor=`,
      `/providers/${shop.providerId}/revenue?from=`,
      '/payments/',
      '/receipts/',
      '/providers/',
    )
    await fc.assert(
      fc.asyncProperty(path, fc.string({ maxLength: 200, unit: 'binary' }), (at, text) =>
        refusedOrAnswered(
          call(gateway.app, 'GET', `${at}${encodeURIComponent(text.toWellFormed())}`, { key: shop.key }),
        ),
      ),
      runs,
    )
  })
})

describe('cursors', () => {
  type Route = { path: string; list: string; position: Record<string, unknown>; key?: string }
  let routes: Route[]

  beforeAll(async () => {
    const at = `/providers/${shop.providerId}`
    const { body: webhook } = await call<{ webhookId: string }>(gateway.app, 'POST', `${at}/webhooks`, {
      json: { url: 'https://127.0.0.1/' },
      key: shop.key,
    })
    const payment = { acceptedAt: 1_795_000_000_000, paymentId: `pay_${'0'.repeat(32)}` }
    const revenue = { startsAt: 1_795_000_000_000, group: '' }
    const usage = { startsAt: 1_795_000_000_000, endpointId: shop.endpointId }
    routes = [
      {
        path: `/settlements/batches?wallet=${shop.wallet}`,
        list: 'batches 31337',
        position: { blockTime: 1_795_000_000, position: 17, chainId: 31337 },
      },
      {
        path: `/network/batches?keeper=${shop.wallet}&from=2026-11-01`,
        list: `network 31337 ${shop.wallet} ${Date.UTC(2026, 10, 1)} undefined`,
        position: { blockTime: 1_795_000_000, position: 17, chainId: 31337 },
      },
      {
        path: `${at}/batches?`,
        list: 'batches',
        position: { blockTime: 1_795_000_000, position: 17, chainId: 31337 },
      },
      { path: `${at}/payments?`, list: 'payments', position: payment },
      { path: `${at}/payments?status=settled`, list: 'payments', position: payment },
      { path: `${at}/failures?`, list: 'failures retrying', position: payment },
      { path: `${at}/revenue?groupBy=wallet`, list: 'revenue day wallet', position: revenue },
      { path: `${at}/revenue?interval=total`, list: 'revenue total none', position: revenue },
      { path: `${at}/usage?`, list: 'usage day', position: usage },
      {
        path: `${at}/webhooks/${webhook.webhookId}/deliveries?`,
        list: webhook.webhookId,
        position: { createdAt: 1_795_000_000_000, id: `whd_${'0'.repeat(32)}` },
      },
      { path: `${at}/changes?`, list: `changes ${shop.providerId}`, position: { id: 17 } },
      {
        path: '/operator/providers?',
        list: 'providers',
        position: { createdAt: 1_795_000_000_000, id: shop.providerId },
        key: operator.key,
      },
    ]
  })

  /** Values at and beyond the limits of columns and types, and values of other types. */
  const extremes = [
    ...[0, -1, 2 ** 31 - 1, 2 ** 31, -(2 ** 31), 2 ** 53 - 1, 2 ** 53, 2 ** 63, 1e300, 0.5],
    ...[253_402_300_799_999, 253_402_300_800_000, 8.64e15, 8.64e15 + 1, -8.64e15],
    ...['', '\0', '\ud800', '-'.repeat(200), '99999999999999999999', null, true, [], {}],
  ]
  const value = fc.oneof(
    fc.constantFrom(...extremes),
    fc.integer(),
    fc.maxSafeInteger(),
    fc.string({ unit: 'binary' }),
    fc.jsonValue(),
  )

  const ask = async ({ path, key = shop.key }: Route, cursor: string) => {
    const at = `${path}&cursor=${encodeURIComponent(cursor.toWellFormed())}`
    const { status, body } = await call(gateway.app, 'GET', at, { key })
    expect([200, 400, 422], `${at}: ${JSON.stringify(body)}`).toContain(status)
    return status
  }

  test('behavior: no list fails with status 500 for a cursor with a value that the database column can’t hold', async () => {
    for (const route of routes) {
      const { path, list, position } = route
      expect([path, await ask(route, encode([list, position]))]).toEqual([path, 200])
      for (const field of Object.keys(position))
        for (const extreme of extremes) await ask(route, encode([list, { ...position, [field]: extreme }]))
    }
  })

  test('behavior: any cursor is either accepted by the database or refused', {
    timeout: 600_000,
  }, async () => {
    const crafted = fc.nat({ max: routes.length - 1 }).chain((index) => {
      const route = routes[index] as Route
      const { list, position } = route
      const field = fc.constantFrom(...Object.keys(position))
      return fc.record({
        route: fc.constant(route),
        cursor: fc.oneof(
          fc
            .array(fc.tuple(field, value), { maxLength: 3 })
            .map((changes) => encode([list, { ...position, ...Object.fromEntries(changes) }])),
          fc.jsonValue().map((json) => encode([list, json])),
          fc.jsonValue().map(encode),
          nearly(encode([list, position])),
        ),
      })
    })
    const answers = new Map<number, number>()
    await fc.assert(
      fc.asyncProperty(crafted, async ({ route, cursor }) => {
        const status = await ask(route, cursor)
        answers.set(status, (answers.get(status) ?? 0) + 1)
      }),
      { ...runs, numRuns: 5 * numRuns },
    )
    // Some of the cursors are valid, so that the database is queried as well.
    expect(answers.get(200)).toBeGreaterThan(numRuns / 10)
    expect(answers.get(400)).toBeGreaterThan(numRuns / 10)
  })

  function encode(json: unknown): string {
    return Buffer.from(JSON.stringify(json)).toString('base64url')
  }
})

test('behavior: memory stays bounded for any made-up keys and ids', { timeout: 600_000 }, async () => {
  const count = Math.max(2_000, numRuns)
  const ask = async (i: number) => {
    const id = `ep_${i.toString(16).padStart(32, '0')}`
    await call(gateway.app, 'GET', `/challenge?providerId=${shop.providerId}&endpointId=${id}`)
    await call(gateway.app, 'POST', '/verify', { json: { ...good, endpointId: id } })
  }
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  for (let i = 0; i < 500; i++) await ask(i)
  collectGarbage()
  const before = process.memoryUsage().heapUsed
  for (let i = 500; i < count; i++) await ask(i)
  collectGarbage()
  expect((process.memoryUsage().heapUsed - before) / 2 ** 20).toBeLessThan(150)
})
