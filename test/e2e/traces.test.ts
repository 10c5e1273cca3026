import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { payingMcpClient, requirePayment } from '@tollkeeper/sdk/mcp/index'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { privateKeyToAccount } from 'viem/accounts'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import { registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import { startCollector } from '../support/collector.ts'
import { connectTo } from '../support/mcp.ts'
import { newBuyer, openProxiedShop, openShop, type Shop } from '../support/shop.ts'
import { useTestStack } from '../support/stack.ts'
import { until } from '../support/until.ts'
import { tokenOf } from '../support/usdc.ts'
import { signPayment } from '../support/x402.ts'

// Traces through real processes: buyer, middleware, gateway, keeper, and a collector that receives what they
// export.

const collector = await startCollector()
const tracing = {
  OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
  OTEL_EXPORTER_OTLP_HEADERS: 'x-credential=for the collector',
}
const triggers = { TRIGGER_TIME_SECONDS: '1', TRIGGER_MIN_AGE_SECONDS: '0' }
const stack = useTestStack({
  env: {
    api: {
      ...tracing,
      ...triggers,
      UPSTREAM_ALLOW_PRIVATE: 'true',
      TRACE_URL_TEMPLATE: 'https://traces.example/trace/{traceId}?from=tollkeeper',
    },
    keeper: { ...tracing, ...triggers },
  },
})
afterAll(() => collector.close())

const newContext = (flags = '01') => {
  const [traceId, spanId] = [randomBytes(16).toString('hex'), randomBytes(8).toString('hex')]
  return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-${flags}` }
}

async function buy({ url }: Shop, traceparent?: string): Promise<string> {
  const { client } = await newBuyer(stack, '1')
  const { paymentId } = await client.request(
    url,
    traceparent === undefined ? {} : { headers: { traceparent } },
  )
  return paymentId as string
}

async function readPayment(paymentId: string, apiKey?: string): Promise<Record<string, unknown>> {
  const headers = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }
  const answer = await fetch(new URL(`/payments/${paymentId}`, stack.api.url), { headers })
  return (await answer.json()) as Record<string, unknown>
}

test.each(['hono', 'express', 'fastify', 'fetch'] as const)(
  'default: traces a payment from the buyer through the %s middleware, the challenge and the verification to the transaction',
  async (framework) => {
    const { traceId, spanId, traceparent } = newContext()
    const shop = await openShop(stack, { framework })
    const paymentId = await buy(shop, traceparent)
    const challenge = await collector.next(
      'the challenge',
      (one) => one.traceId === traceId && /challenge/.test(one.name),
    )
    const verify = await collector.next(
      'the verification',
      (one) => one.traceId === traceId && /verify/.test(one.name),
    )
    expect(challenge).toMatchObject({
      name: 'POST /challenge',
      service: 'tollkeeper-api',
      parentSpanId: spanId,
    })
    expect(verify).toMatchObject({
      name: 'POST /verify',
      service: 'tollkeeper-api',
      parentSpanId: spanId,
      status: 0,
      attributes: { 'tollkeeper.payment.id': paymentId, 'http.response.status_code': 200 },
    })
    const settle = await collector.next('the settlement', ({ links }) =>
      links.some((one) => one.traceId === traceId),
    )
    expect(settle).toMatchObject({ name: 'settle', service: 'tollkeeper-keeper', parentSpanId: undefined })
    expect(settle.links).toContainEqual({ traceId, spanId: verify.spanId })

    // The provider sees the payment's trace, and the transaction that the keeper's span names.
    await until('it is settled', async () => (await readPayment(paymentId)).payment_status === 'settled')
    const shown = await readPayment(paymentId, shop.apiKey)
    expect(shown).toMatchObject({
      trace: { id: traceId, url: `https://traces.example/trace/${traceId}?from=tollkeeper` },
      provider: { transactionHash: settle.attributes['tollkeeper.transaction.hash'] },
    })
    // No one else sees the trace, neither with the payment's id nor as another provider.
    const other = await openShop(stack)
    for (const apiKey of [undefined, other.apiKey])
      expect(await readPayment(paymentId, apiKey)).toMatchObject({ paymentId, trace: null })
    await Promise.all([shop.close(), other.close()])
  },
)

test('behavior: traces a request that the gateway sells for a provider without code', async () => {
  const { traceId, traceparent } = newContext()
  const shop = await openProxiedShop(stack, '0.01')
  const paymentId = await buy(shop, traceparent)
  const verify = await collector.next(
    'the verification',
    (one) => one.attributes['tollkeeper.payment.id'] === paymentId,
  )
  expect(verify.traceId).toBe(traceId)
  await shop.close()
})

test('behavior: traces a call of a paid tool by the trace context in the call’s `_meta`', async () => {
  const { traceId, spanId, traceparent } = newContext()
  const { address, privateKey: walletPrivateKey } = await newBuyer(stack, '1')
  const { chain, api } = stack
  const [price, { network }] = ['0.01', chain]
  const provider = await registerProvider({
    gatewayUrl: api.url,
    name: 'Tools',
    network,
    address,
    endpoints: [{ url: 'mcp://tool/weather', method: 'POST', usdcPerUnit: price }],
  })
  const server = new McpServer({ name: 'weather', version: '1.0.0' })
  const { providerId, apiKey } = provider
  const gate = { gatewayUrl: api.url, providerId, apiKey, pricing: { usdcPerUnit: price } }
  requirePayment(gate)(server).registerTool('weather', {}, () => ({ content: [] }))
  const paying = payingMcpClient(await connectTo(server), {
    gatewayUrl: api.url,
    network,
    usdcAddress: tokenOf(chain),
    walletPrivateKey,
    limits: { perPayment: price },
    tabs: false,
  })
  const { _meta } = await paying.callTool({ name: 'weather', _meta: { traceparent } })
  const { paymentId } = (_meta?.['tollkeeper/receipt'] ?? {}) as { paymentId?: string }
  const verify = await collector.next(
    'the verification',
    (one) => one.attributes['tollkeeper.payment.id'] === paymentId,
  )
  expect(verify).toMatchObject({ traceId, parentSpanId: spanId })
})

test.each([
  ['in a header', false, '/verify'],
  ['in the path', true, '/k/:key/verify'],
])(
  'behavior: traces a seller’s facilitator payment from its verification, with the seller’s key %s',
  async (_, isInPath, route) => {
    const { traceId, spanId, traceparent } = newContext()
    const seller = await openShop(stack)
    const { privateKey, address } = await newBuyer(stack, '1')
    const served = { network: networkByName(stack.chain.network), token: tokenOf(stack.chain) }
    const { body } = await signPayment(served, privateKeyToAccount(privateKey), { payTo: seller.address })
    const ask = async (path: string) => {
      const headers = {
        'content-type': 'application/json',
        traceparent,
        ...(!isInPath && { authorization: `Bearer ${seller.apiKey}` }),
      }
      const answer = await fetch(new URL(isInPath ? `/k/${seller.apiKey}${path}` : path, stack.keeper.url), {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
      })
      return (await answer.json()) as Record<string, unknown>
    }
    expect(await ask('/verify')).toMatchObject({ isValid: true, payer: address.toLowerCase() })
    const { transaction } = await ask('/settle')
    const verify = await collector.next(
      'the verification',
      (one) => one.traceId === traceId && /verify/.test(one.name),
    )
    expect(verify).toMatchObject({
      name: `POST ${route}`,
      service: 'tollkeeper-keeper',
      parentSpanId: spanId,
      attributes: { 'http.route': route },
    })
    const settle = await collector.next('the settlement', ({ links }) =>
      links.some((one) => one.traceId === traceId),
    )
    expect(settle.links).toContainEqual({ traceId, spanId: verify.spanId })
    expect(settle.attributes['tollkeeper.transaction.hash']).toBe(transaction)
    expect(collector.text()).not.toContain(seller.apiKey)
    await seller.close()
  },
)

test('behavior: records no trace if the buyer doesn’t sample it, and starts a new trace for a request without one', async () => {
  const shop = await openShop(stack)
  const unsampled = newContext('00')
  const silent = await buy(shop, unsampled.traceparent)
  const junk = await buy(shop, `00-${'z'.repeat(32)}-${'0'.repeat(16)}-01`)
  const verify = await collector.next(
    'its verification',
    (one) => one.attributes['tollkeeper.payment.id'] === junk,
  )
  expect(verify.parentSpanId).toBeUndefined()
  await until('its trace is stored', async () => (await readPayment(junk, shop.apiKey)).trace !== null)
  expect(await readPayment(junk, shop.apiKey)).toMatchObject({ trace: { id: verify.traceId } })
  await until('both are settled', async () => {
    const standings = await Promise.all([silent, junk].map((id) => readPayment(id)))
    return standings.every(({ payment_status }) => payment_status === 'settled')
  })
  expect(await readPayment(silent, shop.apiKey)).toMatchObject({ trace: null })
  expect(collector.text()).not.toContain(unsampled.traceId)
  await shop.close()
})

test('behavior: sends the collector no secret except the collector’s own credential', async () => {
  const { traceId, traceparent } = newContext()
  const shop = await openShop(stack)
  await buy(shop, traceparent)
  await collector.next('the settlement', ({ links }) => links.some((one) => one.traceId === traceId))
  expect(new Set(collector.headers)).toEqual(new Set(['for the collector']))
  const names = new Set(collector.spans.flatMap(({ attributes }) => Object.keys(attributes)))
  expect([...names].sort()).toEqual([
    ...['http.request.method', 'http.response.status_code', 'http.route', 'tollkeeper.batch.id'],
    ...['tollkeeper.network', 'tollkeeper.payment.id', 'tollkeeper.payments', 'tollkeeper.transaction.hash'],
    ...['tollkeeper.transaction.kind', 'tollkeeper.wallet'],
  ])
  expect(collector.text()).not.toMatch(/tk_[0-9a-f]|0x[0-9a-f]{65}|eyJ|macaroon/i)
  await shop.close()
})

test('behavior: only logs a warning if the collector is unreachable', async () => {
  const { traceparent } = newContext()
  const gone = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9', PUBLIC_URL: stack.api.url }
  const api = await stack.createService('api', gone)
  await api.start()
  const warned = api.nextLine(/rejects traces/)
  const shop = await openShop(stack, { gatewayUrl: api.url })
  expect(await buy(shop, traceparent)).toMatch(/^pay_/)
  expect(JSON.parse(await warned)).toMatchObject({ reason: expect.stringMatching(/^connect ECONNREFUSED/) })
  await api.stop()
  await shop.close()
})

/** Records each OpenTelemetry module that a process imports or requires. */
const spy =
  "data:text/javascript,import { registerHooks } from 'node:module'; import { appendFileSync } from 'node:fs';" +
  'registerHooks({ load(url, context, next) {' +
  "if (url.includes('opentelemetry')) appendFileSync(process.env.SEEN_FILE, url + '\\n'); return next(url, context) } })"

test.each(['api', 'keeper'] as const)(
  'behavior: without a collector, the %s loads only the API module of OpenTelemetry',
  async (name) => {
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-traces-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const loadedWith = async (endpoint: string) => {
      const seenFile = join(folder, endpoint === '' ? 'off' : 'on')
      await writeFile(seenFile, '')
      const service = await stack.createService(name, {
        NODE_OPTIONS: `--import="${spy}"`,
        SEEN_FILE: seenFile,
        OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
      })
      await service.start()
      await service.stop()
      const packages = [...(await readFile(seenFile, 'utf8')).matchAll(/@opentelemetry\/([\w-]+)/g)]
      return new Set(packages.map(([, one]) => one))
    }
    // prom-client loads only the API, to ask whether there is a trace.
    expect([...(await loadedWith(''))].filter((one) => one !== 'api')).toEqual([])
    if (name === 'keeper') return
    // Check that the spy detects modules.
    const loaded = await loadedWith(collector.url)
    for (const one of ['api', 'sdk-trace', 'exporter-trace-otlp-http', 'resources'])
      expect(loaded).toContain(one)
  },
)
