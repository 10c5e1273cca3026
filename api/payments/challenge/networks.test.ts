import type { Server } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createGate } from '@tollkeeper/sdk/middleware/gate'
import { encodeAuthorizationHeader } from '@tollkeeper/sdk/protocol/authorizationHeader'
import { type Challenge, maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { type NetworkName, networks } from '@tollkeeper/sdk/protocol/networks'
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

// One process serves a production network and two test networks. Worthless money must never pay for what costs
// real money, whoever asks for it, at any moment.

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
      return { network: networks[name], deployment, rpcUrls: [chains[name].url] }
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

/** A process that has nothing cached. */
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

/** A payment of a challenge, on whatever network it is for. */
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
  test('error: test and production networks are not mixed, whatever writes the table', async () => {
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
    // Whatever a row says of its network, it contradicts either that network or its endpoint.
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

  test('error: two wallets of one network, or of somebody else', async () => {
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
  ])('behavior: an endpoint on %j, asked for %s: %s', async (names, asked, expected) => {
    const { status, body } = await askChallenge(await endpointOn(await register(), names), asked)
    if (status === 200) expect(body.accepts.map(({ network }) => network)).toEqual([expected, expected])
    else expect([status, body.code]).toEqual([422, expected])
  })
})

describe('verify', () => {
  test('behavior: a challenge from before the endpoint changed its networks buys nothing for test money', async () => {
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
    // The money is of the same kind, so the terms are those that were signed.
    await move(['localhost'])
    expect((await verify(restart(), endpoint, 'base-sepolia', first)).status).toBe(200)
    // It goes into production: its price was in test money, and is in real money now.
    await move(['base'])
    const test = await verify(restart(), endpoint, 'localhost', second)
    expect([test.status, test.body.code]).toEqual([402, 'challenge_network_mismatch'])
    expect((await verify(restart(), endpoint, 'base')).status).toBe(200)
  })

  test('behavior: nor does one of an endpoint that was replaced, while middlewares still know the old one', async () => {
    const provider = await register()
    for (const [name, expected] of [
      ['localhost', [409, 'endpoint_disabled']],
      ['base', [200, undefined]],
    ] as const) {
      const endpoint = await endpointOn(provider, [name])
      const before = await signed(endpoint, name)
      await gateway.database`update endpoint set disabled_at = now() where id = ${endpoint.endpointId}`
      // A payment without a challenge, as in x402 v1, was never promised anything.
      const bare = { payloads: [before.payloads[0]], x402Version: 1 } as unknown as typeof before
      const unpromised = await verify(restart(), endpoint, name, bare)
      expect([unpromised.status, unpromised.body.code]).toEqual([409, 'endpoint_disabled'])
      const { status, body } = await verify(restart(), endpoint, name, before)
      expect([status, body.code]).toEqual(expected)
    }
  })

  test('behavior: a payment that was accepted stays so when the endpoint changes its networks', async () => {
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
    // It was set up for production, and the endpoint was not: nothing is served for test money.
    [both, 'base', 'localhost', 503],
    [['base'], 'base', 'base', 'served'],
    [['base'], 'localhost', 'base', 503],
  ])(
    'behavior: an endpoint on %j, a middleware on %s, a payment on %s: %s',
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

describe('what was paid in test money', () => {
  test('behavior: says so, and is in no sum with real money', async () => {
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

  test("behavior: test money doesn't use up what a provider may have unsettled", async () => {
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
