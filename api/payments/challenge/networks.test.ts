import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createGate, type GateOptions } from '@tollkeeper/sdk/middleware/gate'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { type Challenge, maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { type NetworkName, networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import type { PrivateKeyAccount } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type LocalChain, startLocalChain } from '../../../apps/devstack/chain/startLocalChain.ts'
import { listen, urlOf } from '../../../sdk/test/serve.ts'
import { call, sign } from '../../../test/support/gateway.ts'
import { setIndexedHead } from '../../../test/support/indexTables.ts'
import { randomHex, validFor } from '../../../test/support/usdc.ts'
import { useGateway } from '../../../test/support/useGateway.ts'
import type { App } from '../../http/app.ts'

// One process serves a production network and two test networks. Test money must never buy anything that costs real money, for any caller
// and at any moment.

type Name = 'localhost' | 'base' | 'base-sepolia'

const gateway = useGateway()
let served: Record<Name, ServedNetwork>
const chains = {} as Record<Name, LocalChain>
let app: App

beforeAll(async () => {
  chains.localhost = gateway.chain
  for (const network of ['base', 'base-sepolia'] as const) {
    chains[network] = await startLocalChain({ network, blockTimeMs: 0 })
  }
  const opened = await openServedNetworks(
    (['base', 'base-sepolia'] as const).map((name) => {
      const deployment = chains[name].deployments[name]
      if (deployment === undefined) throw new Error(`no deployment on ${name}`)
      return { network: networkByName(name), deployment, rpcUrls: [chains[name].url] }
    }),
  )
  const [base, sepolia] = opened as [ServedNetwork, ServedNetwork]
  served = { localhost: gateway.served, base, 'base-sepolia': sepolia }
  for (const { network, client } of opened) {
    const { number, timestamp } = await client.getBlock()
    await setIndexedHead(gateway.database, {
      chainId: network.chainId,
      blockNumber: Number(number),
      blockTime: Number(timestamp),
    })
  }
  app = restart()
})
afterAll(async () => {
  await chains.base?.close()
  await chains['base-sepolia']?.close()
})

/** Starts a process that has nothing cached. */
function restart(): App {
  return gateway.withOptions({ networks: Object.values(served) })
}

type Provider = { providerId: string; key: string; wallets: Record<Name, string> }
type Endpoint = { providerId: string; endpointId: string; url: string }

async function register(): Promise<Provider> {
  const { body } = await call<{ providerId: string; apiKey: string }>(app, 'POST', '/providers', {
    json: { name: 'Weather' },
  })
  const wallets = {} as Provider['wallets']
  for (const network of ['localhost', 'base', 'base-sepolia'] as const) {
    const wallet = await call<{ walletId: string; testnet: boolean }>(
      app,
      'POST',
      `/providers/${body.providerId}/wallets`,
      { key: body.apiKey, json: { network, address: randomHex(20) } },
    )
    expect(wallet.body.testnet).toBe(network !== 'base')
    wallets[network] = wallet.body.walletId
  }
  return { providerId: body.providerId, key: body.apiKey, wallets }
}

let paths = 0
function addEndpoint({ providerId, key, wallets }: Provider, names: Name[]) {
  const url = `https://weather.example/${++paths}`
  const json = { url, pricing: { usdcPerUnit: '0.05' }, walletIds: names.map((name) => wallets[name]) }
  return call<Endpoint & { code?: string }>(app, 'POST', `/providers/${providerId}/endpoints`, { key, json })
}

async function endpointOn(provider: Provider, names: Name[]): Promise<Endpoint> {
  const { status, body } = await addEndpoint(provider, names)
  expect([status, body]).toMatchObject([
    201,
    { network: names[0], networks: names.map((network) => ({ network })), testnet: names[0] !== 'base' },
  ])
  return body
}

async function askChallenge({ providerId, endpointId }: Endpoint, network?: NetworkName) {
  return call<Challenge & { code?: string }>(restart(), 'POST', '/challenge', {
    json: { providerId, endpointId, ...(network && { network }) },
  })
}

async function richBuyer(): Promise<PrivateKeyAccount> {
  const account = privateKeyToAccount(generatePrivateKey())
  for (const chain of Object.values(chains)) await chain.mintUsdc([account.address], 10_000_000n)
  return account
}

/** Signs a payment of a challenge, on the network that the challenge is for. */
async function signed(endpoint: Endpoint, network: Name) {
  const { body: challenge } = await askChallenge(endpoint, network)
  const payer = await richBuyer()
  const window = validFor(maxTimeoutSeconds)
  const half = async (index: 0 | 1) =>
    encodePayload(await sign(served[network], payer, challenge, index, window))
  return { macaroon: challenge.macaroon, payloads: [await half(0), await half(1)] as [string, string] }
}

async function verify(
  on: App,
  endpoint: Endpoint,
  network: Name,
  payment?: Awaited<ReturnType<typeof signed>>,
) {
  const { providerId, endpointId } = endpoint
  const json = { ...(payment ?? (await signed(endpoint, network))), providerId, endpointId }
  return call<{ code?: string; paymentId: string; receipt: string }>(on, 'POST', '/verify', { json })
}

describe('registration', () => {
  test('error: the API and the database both refuse an endpoint that mixes test and production networks', async () => {
    const provider = await register()
    for (const names of [
      ['base', 'localhost'],
      ['base-sepolia', 'base'],
    ] as Name[][]) {
      const { status, body } = await addEndpoint(provider, names)
      expect([status, body.code]).toEqual([422, 'networks_mixed'])
    }
    const { endpointId } = await endpointOn(provider, ['base'])
    const another = await endpointOn(provider, ['localhost', 'base-sepolia'])
    // With either value, the row contradicts its network or its endpoint, so a foreign key rejects it.
    for (const testnet of [true, false]) {
      const insert = gateway.database`
        insert into endpoint_wallet (endpoint_id, wallet_id, chain_id, testnet)
        values (${endpointId}, ${provider.wallets.localhost}, 31337, ${testnet})`
      await expect(insert).rejects.toMatchObject({ code: '23503' })
      const move = gateway.database`
        update endpoint set wallet_id = ${provider.wallets.base}, chain_id = 8453, testnet = ${testnet}
        where id = ${another.endpointId}`
      await expect(move).rejects.toMatchObject({ code: '23503' })
    }
  })

  test('error: rejects an endpoint with two wallets on one network, or with another provider’s wallet', async () => {
    const provider = await register()
    const twice = await addEndpoint(provider, ['base', 'base'])
    expect([twice.status, twice.body.code]).toEqual([422, 'invalid_field'])
    const strange = await addEndpoint({ ...provider, wallets: (await register()).wallets }, ['base'])
    expect([strange.status, strange.body.code]).toEqual([404, 'unknown_wallet'])
  })
})

describe('challenge', () => {
  test.each<[Name[], NetworkName | undefined, Name | 'network_not_accepted' | 'network_not_served']>([
    [['base'], undefined, 'base'],
    [['base'], 'base', 'base'],
    [['base'], 'base-sepolia', 'network_not_accepted'],
    [['base'], 'localhost', 'network_not_accepted'],
    [['base'], 'polygon', 'network_not_served'],
    [['localhost', 'base-sepolia'], undefined, 'localhost'],
    [['base-sepolia', 'localhost'], undefined, 'base-sepolia'],
    [['localhost', 'base-sepolia'], 'base-sepolia', 'base-sepolia'],
    [['localhost', 'base-sepolia'], 'base', 'network_not_accepted'],
  ])(
    'behavior: an endpoint on the networks %j answers a challenge request for the network %s with %s',
    async (names, asked, expected) => {
      const { status, body } = await askChallenge(await endpointOn(await register(), names), asked)
      if (status === 200) expect(body.accepts.map(({ network }) => network)).toEqual([expected, expected])
      else expect([status, body.code]).toEqual([422, expected])
    },
  )
})

describe('verify', () => {
  test('behavior: rejects a testnet payment for an old challenge once the endpoint accepts only real money', async () => {
    const provider = await register()
    const endpoint = await endpointOn(provider, ['localhost', 'base-sepolia'])
    const [first, second] = [await signed(endpoint, 'base-sepolia'), await signed(endpoint, 'localhost')]
    const move = async (names: Name[]) => {
      const { status } = await call(
        app,
        'PATCH',
        `/providers/${provider.providerId}/endpoints/${endpoint.endpointId}`,
        {
          key: provider.key,
          headers: { 'if-match': '*' },
          json: { walletIds: names.map((name) => provider.wallets[name]) },
        },
      )
      expect(status).toBe(200)
    }
    // Both networks use test money, so the signed terms are honored although the endpoint no longer accepts base-sepolia.
    await move(['localhost'])
    expect((await verify(restart(), endpoint, 'base-sepolia', first)).status).toBe(200)
    // The endpoint moves to production: its price was in test money, and is in real money now.
    await move(['base'])
    const test = await verify(restart(), endpoint, 'localhost', second)
    expect([test.status, test.body.code]).toEqual([402, 'challenge_network_mismatch'])
    expect((await verify(restart(), endpoint, 'base')).status).toBe(200)
  })

  test('behavior: rejects test money for an endpoint that was replaced, even if middlewares still know the old endpoint', async () => {
    const provider = await register()
    for (const [name, expected] of [
      ['localhost', [409, 'endpoint_disabled']],
      ['base', [200, undefined]],
    ] as const) {
      const endpoint = await endpointOn(provider, [name])
      const before = await signed(endpoint, name)
      await gateway.database`update endpoint set disabled_at = now() where id = ${endpoint.endpointId}`
      // A payment without a challenge, as in x402 v1, has no earlier terms that could be honored.
      const bare = { payloads: [before.payloads[0]], x402Version: 1 } as unknown as typeof before
      const unpromised = await verify(restart(), endpoint, name, bare)
      expect([unpromised.status, unpromised.body.code]).toEqual([409, 'endpoint_disabled'])
      const { status, body } = await verify(restart(), endpoint, name, before)
      expect([status, body.code]).toEqual(expected)
    }
  })

  test('behavior: an accepted payment stays accepted when the endpoint changes its networks', async () => {
    const endpoint = await endpointOn(await register(), ['localhost', 'base-sepolia'])
    const { providerId, endpointId } = endpoint
    const json = { ...(await signed(endpoint, 'base-sepolia')), providerId, endpointId }
    const request = { json, headers: { 'idempotency-key': 'one' } }
    const accepted = await call(app, 'POST', '/verify', request)
    expect(accepted.status).toBe(200)
    await gateway.database`delete from endpoint_wallet where endpoint_id = ${endpoint.endpointId}`
    const again = await call(restart(), 'POST', '/verify', request)
    const receipt = accepted.body.receipt as string
    expect([again.status, again.body]).toEqual([200, { ...accepted.body, receipt: expect.any(String) }])
    expect(decodeReceipt(again.body.receipt as string)).toEqual(decodeReceipt(receipt))
    const { status, body } = await call(restart(), 'POST', '/verify', { json })
    expect([status, body.code]).toEqual([409, 'payment_replayed'])
  })
})

describe('middleware', () => {
  const both: Name[] = ['localhost', 'base-sepolia']
  test.each<[Name[], NetworkName | undefined, Name, 'served' | number]>([
    [both, undefined, 'localhost', 'served'],
    [both, undefined, 'base-sepolia', 'served'],
    [both, 'localhost', 'localhost', 'served'],
    [both, 'localhost', 'base-sepolia', 402],
    [both, 'base-sepolia', 'localhost', 402],
    // The middleware is configured for production, but the endpoint isn't: nothing is served for test money.
    [both, 'base', 'localhost', 503],
    [['base'], 'base', 'base', 'served'],
    [['base'], 'localhost', 'base', 503],
  ])(
    'behavior: an endpoint on the networks %j, behind a middleware whose network setting is %s, answers a payment on %s with: %s',
    async (names, network, paid, expected) => {
      const endpoint = await endpointOn(await register(), names)
      const { providerId, endpointId, url } = endpoint
      const server = createAdaptorServer({ fetch: app.fetch }) as Server
      await listen(server)
      const gate = createGate({
        gatewayUrl: urlOf(server),
        providerId,
        endpointId,
        pricing: { usdcPerUnit: '0.05' },
        ...(network && { network }),
      })
      const authorization = encodeAuthorizationHeader(await signed(endpoint, paid))
      const decision = await gate.check({ method: 'GET', url, authorization })
      if (decision.kind !== 'answer') {
        expect('served').toBe(expected)
        return
      }
      expect(decision.answer.status).toBe(expected)
      if (expected !== 402) return
      const body = JSON.parse(decision.answer.body) as Challenge & { code: string }
      expect([body.code, body.accepts[0].network]).toEqual(['challenge_network_mismatch', network])
    },
  )
})

describe('payments in test money', () => {
  test('behavior: marks payments in test money, and sums them separately from real money', async () => {
    const provider = await register()
    const { providerId, key } = provider
    const [real, testing] = [await endpointOn(provider, ['base']), await endpointOn(provider, ['localhost'])]
    for (const [endpoint, name, count] of [
      [real, 'base', 1],
      [testing, 'localhost', 2],
    ] as const) {
      for (let n = 0; n < count; n++) {
        const { body } = await verify(app, endpoint, name)
        const testnet = name === 'localhost'
        expect(decodeReceipt(body.receipt)).toMatchObject({ network: name, testnet })
        const view = await call(app, 'GET', `/payments/${body.paymentId}`)
        expect(view.body).toMatchObject({ network: name, testnet })
      }
    }
    const get = async (path: string) =>
      (await call(app, 'GET', `/providers/${providerId}/${path}`, { key })).body
    const revenue = (query = '') => get(`revenue?interval=total${query}`)
    const sums = (payments: number, gross_usdc: string) => ({ revenue: [{ payments, gross_usdc }] })
    expect(await revenue()).toMatchObject({ testnet: false, ...sums(1, '0.050000') })
    expect(await revenue('&testnet=true')).toMatchObject({ testnet: true, ...sums(2, '0.100000') })
    expect(await revenue('&network=localhost')).toMatchObject({ testnet: true, ...sums(2, '0.100000') })
    expect(await revenue('&network=base&testnet=true')).toMatchObject({ revenue: [] })
    expect(await get('payers')).toMatchObject({ testnet: false, payers: [{ network: 'base' }] })
    expect(await get('payers?testnet=true')).toMatchObject({ payers: [{}, {}] })
    expect(await get('payments')).toMatchObject({
      payments: [{ testnet: true }, { testnet: true }, { testnet: false }],
    })
  })

  test("behavior: test money doesn't count towards a provider's limit of unsettled payments", async () => {
    const provider = await register()
    const [real, testing] = [await endpointOn(provider, ['base']), await endpointOn(provider, ['localhost'])]
    const capped = gateway.withOptions({
      networks: Object.values(served),
      settings: { ...gateway.settings, providerCap: 50_000n },
    })
    expect((await verify(capped, testing, 'localhost')).status).toBe(200)
    expect((await verify(capped, testing, 'localhost')).body.code).toBe('provider_limit_exceeded')
    expect((await verify(capped, real, 'base')).status).toBe(200)
  })
})

describe('a sandbox and production on the same path', () => {
  type Sold = { provider: Provider; live: Endpoint; sandbox: Endpoint }

  async function sellBoth(): Promise<Sold> {
    const provider = await register()
    const add = async (host: string, network: Name, usdcPerUnit: string) => {
      const json = {
        url: `https://${host}/forecast`,
        method: 'GET',
        pricing: { usdcPerUnit },
        walletIds: [provider.wallets[network]],
      }
      const path = `/providers/${provider.providerId}/endpoints`
      const { status, body } = await call<Endpoint>(app, 'POST', path, { key: provider.key, json })
      expect([status, body]).toMatchObject([201, { url: json.url }])
      return body
    }
    const live = await add('api.example', 'base', '0.05')
    return { provider, live, sandbox: await add('sandbox.example', 'localhost', '0.01') }
  }

  async function change({ provider: { providerId, key } }: Sold, { endpointId }: Endpoint, json: object) {
    const path = `/providers/${providerId}/endpoints/${endpointId}`
    const { status } = await call(app, 'PATCH', path, { key, json, headers: { 'if-match': '*' } })
    expect(status).toBe(200)
  }

  /** Sends a request to a new instance of the middleware, and of the gateway, that have nothing cached. */
  async function visit(
    { provider: { providerId } }: Sold,
    {
      url = 'http://10.0.0.7:3000/forecast',
      authorization,
      ...options
    }: Partial<GateOptions> & {
      url?: string
      authorization?: string
    },
  ) {
    const on = restart()
    const warnings: string[] = []
    const gate = createGate({
      gatewayUrl: gateway.settings.issuer,
      providerId,
      fetch: async (asked: string, init?: RequestInit) => on.request(asked, init),
      warn: (message: string) => void warnings.push(message),
      ...options,
    } as Parameters<typeof createGate>[0])
    const forwarded = { forwardedProto: 'https', forwardedHost: 'sandbox.example' }
    const decision = await gate.check({ method: 'GET', url, authorization, ...forwarded })
    if (decision.kind !== 'answer') throw new Error('it was served')
    const { status, body } = decision.answer
    return { status, body: JSON.parse(body), warnings }
  }

  test('behavior: each site sells its own endpoint, chosen by its publicUrl or its endpointId', async () => {
    const sold = await sellBoth()
    for (const options of [{ publicUrl: 'https://api.example' }, { endpointId: sold.live.endpointId }]) {
      const { status, body } = await visit(sold, options)
      expect([status, body.endpointId, body.accepts[0].network]).toEqual([402, sold.live.endpointId, 'base'])
      expect(body.accepts[0].resource).toBe('https://api.example/forecast')
    }
    const { body } = await visit(sold, { publicUrl: 'https://sandbox.example' })
    expect([body.endpointId, body.accepts[0].network]).toEqual([sold.sandbox.endpointId, 'localhost'])
    expect(body.accepts[0].resource).toBe('https://sandbox.example/forecast')
  })

  test('error: a Host or X-Forwarded-Host that names the sandbox selects neither the sandbox’s price nor test money', async () => {
    const sold = await sellBoth()
    const spoofed = 'https://sandbox.example/forecast'
    // If the site sets `publicUrl`, the request's host has no effect.
    const { body } = await visit(sold, { url: spoofed, publicUrl: 'https://api.example' })
    expect([body.endpointId, body.accepts[0].network]).toEqual([sold.live.endpointId, 'base'])
    // If the site sets neither `publicUrl` nor `endpointId`, it sells nothing, and a warning tells its operator to set one of them.
    for (const url of [spoofed, 'https://api.example/forecast', 'http://127.0.0.1:3000/forecast']) {
      const { status, warnings, ...refused } = await visit(sold, { url })
      expect([status, refused.body.code]).toEqual([503, 'dependency_unavailable'])
      expect(warnings).toEqual([expect.stringMatching(/endpoint_ambiguous: .*set publicUrl/)])
    }
  })

  test('behavior: a seller without our middleware that passes on the requested URL gets endpoint_ambiguous for any host', async () => {
    const { provider, live, sandbox } = await sellBoth()
    const { providerId } = provider
    for (const host of ['sandbox.example', 'api.example', 'cheap.example']) {
      const json = { providerId, method: 'GET', resource: `https://${host}/forecast` }
      expect(await call(restart(), 'POST', '/challenge', { json })).toMatchObject({
        status: 422,
        body: {
          code: 'endpoint_ambiguous',
          detail: expect.stringMatching(
            /^GET \/forecast is registered on api.example, sandbox.example, and /,
          ),
          candidates: expect.arrayContaining([
            { endpointId: live.endpointId, host: 'api.example' },
            { endpointId: sandbox.endpointId, host: 'sandbox.example' },
          ]),
        },
      })
    }
  })

  test('error: a payment for the sandbox buys nothing at the live site', async () => {
    const sold = await sellBoth()
    const payment = await signed(sold.sandbox, 'localhost')
    const authorization = encodeAuthorizationHeader(payment)
    const { status, body } = await visit(sold, { publicUrl: 'https://api.example', authorization })
    expect([status, body.code ?? body.error]).toEqual([402, expect.stringContaining('caveat_mismatch')])
    expect(await verify(restart(), sold.live, 'localhost', payment)).toMatchObject({
      status: 402,
      body: { code: 'caveat_mismatch' },
    })
  })

  test('behavior: a known host sells only what is registered on it', async () => {
    const sold = await sellBoth()
    const { providerId, key, wallets } = sold.provider
    const json = {
      url: 'https://api.example/other',
      pricing: { usdcPerUnit: '0.05' },
      walletIds: [wallets.base],
    }
    await call(app, 'POST', `/providers/${providerId}/endpoints`, { key, json })
    await change(sold, sold.live, { url: 'https://moved.example/forecast' })
    // The same path is registered on another host, at a price in test money.
    expect(await visit(sold, { publicUrl: 'https://api.example' })).toMatchObject({ status: 404 })
  })

  test('behavior: behind a proxy, a path registered on one host is found under any site name', async () => {
    const sold = await sellBoth()
    await change(sold, sold.sandbox, { disabled: true })
    // A disabled endpoint in test money is ignored.
    const found = await visit(sold, {})
    expect([found.status, found.body.endpointId]).toEqual([402, sold.live.endpointId])
    expect((await visit(sold, { publicUrl: 'https://elsewhere.example' })).body.endpointId).toBe(
      sold.live.endpointId,
    )
    expect((await visit(sold, { publicUrl: 'https://sandbox.example' })).status).toBe(409)
    // But an endpoint in test money never replaces a disabled endpoint in real money.
    await change(sold, sold.sandbox, { disabled: false })
    await change(sold, sold.live, { disabled: true })
    expect(await visit(sold, {})).toMatchObject({ status: 503 })
    expect((await visit(sold, { publicUrl: 'https://api.example' })).status).toBe(409)
  })

  test('behavior: a refused registration names the rule and the conflicting endpoint; an accepted registration lists the endpoints of other hosts that share its paths', async () => {
    const { provider, live, sandbox } = await sellBoth()
    const path = `/providers/${provider.providerId}/endpoints`
    const add = (url: string) =>
      call(app, 'POST', path, {
        key: provider.key,
        json: { url, method: 'GET', pricing: { usdcPerUnit: '0.05' }, walletIds: [provider.wallets.base] },
      })
    for (const url of ['https://api.example/forecast/', 'https://API.example:443/Forecast']) {
      expect(await add(url)).toMatchObject({
        status: 409,
        body: {
          code: 'endpoint_exists',
          detail: expect.stringMatching(
            `A provider has one endpoint for each host, method and path, and GET ${live.url} is already ${live.endpointId}: `,
          ),
          endpointId: live.endpointId,
          url: live.url,
        },
      })
    }
    const { body } = await add('https://api.example:8443/*')
    const shares = [live, sandbox].map(({ endpointId, url }) => ({ endpointId, url }))
    expect(body.sharesPathWith).toEqual(shares)
    const read = await call(app, 'GET', `${path}/${live.endpointId}`, { key: provider.key })
    expect(read.body.sharesPathWith).toHaveLength(2)
  })
})
