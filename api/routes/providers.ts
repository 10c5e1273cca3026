import { createRoute, z } from '@hono/zod-openapi'
import { formatUsdc, parseUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../app.ts'
import { minimumPriceOn } from '../challenge/price.ts'
import { requireOwner } from '../http/authenticate.ts'
import { type Gateway, networkOf, requireNetwork } from '../http/gateway.ts'
import { jsonAnswer, jsonBody, problems } from '../http/problems.ts'
import * as schemas from '../http/schemas.ts'
import { Refusal } from '../refusal.ts'
import { issueApiKey, listApiKeys, revokeApiKey } from '../registry/apiKeys.ts'
import { type Endpoint, findEndpoint, insertEndpoint, listEndpoints } from '../registry/endpoints.ts'
import { findProvider, insertProvider, type Provider } from '../registry/providers.ts'
import { findWallet, insertWallet, listWallets, type Wallet } from '../registry/wallets.ts'

const security = [{ apiKey: [] }]
const owner = { security, tags: ['Providers'] }
const params = z.object({ id: schemas.providerId })

const createProvider = createRoute({
  method: 'post',
  path: '/providers',
  summary: 'Register a provider',
  tags: ['Providers'],
  request: { body: jsonBody(schemas.newProvider) },
  responses: {
    201: jsonAnswer('The provider, and its first API key', schemas.providerWithKey),
    ...problems(400, 413, 422, 429, 503),
  },
})

const getProvider = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}',
  summary: 'A provider',
  request: { params },
  responses: { 200: jsonAnswer('The provider', schemas.provider), ...problems(401, 403, 404, 503) },
})

const createKey = createRoute({
  ...owner,
  method: 'post',
  path: '/providers/{id}/keys',
  summary: 'Issue a further API key',
  request: { params, body: jsonBody(schemas.newApiKey) },
  responses: { 201: jsonAnswer('The key', schemas.issuedApiKey), ...problems(400, 401, 403, 413, 422, 503) },
})

const getKeys = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/keys',
  summary: 'API keys, without their secrets',
  request: { params },
  responses: {
    200: jsonAnswer('The keys, oldest first', z.object({ keys: z.array(schemas.apiKey) })),
    ...problems(401, 403, 503),
  },
})

const revokeKey = createRoute({
  ...owner,
  method: 'delete',
  path: '/providers/{id}/keys/{keyId}',
  summary: 'Revoke an API key, for good',
  request: { params: params.extend({ keyId: schemas.keyId }) },
  responses: {
    204: { description: 'Revoked; it is refused within two seconds' },
    ...problems(401, 403, 404, 503),
  },
})

const createWallet = createRoute({
  ...owner,
  method: 'post',
  path: '/providers/{id}/wallets',
  summary: 'Register a wallet to be paid on',
  request: { params, body: jsonBody(schemas.newWallet) },
  responses: {
    201: jsonAnswer('The wallet', schemas.wallet),
    ...problems(400, 401, 403, 409, 413, 422, 503),
  },
})

const getWallets = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/wallets',
  summary: 'Wallets',
  request: { params },
  responses: {
    200: jsonAnswer('The wallets, oldest first', z.object({ wallets: z.array(schemas.wallet) })),
    ...problems(401, 403, 503),
  },
})

const getWallet = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/wallets/{walletId}',
  summary: 'A wallet',
  request: { params: params.extend({ walletId: schemas.walletId }) },
  responses: { 200: jsonAnswer('The wallet', schemas.wallet), ...problems(401, 403, 404, 503) },
})

const createEndpoint = createRoute({
  ...owner,
  method: 'post',
  path: '/providers/{id}/endpoints',
  summary: 'Register an endpoint and its price',
  request: { params, body: jsonBody(schemas.newEndpoint) },
  responses: {
    201: jsonAnswer('The endpoint', schemas.endpoint),
    ...problems(400, 401, 403, 404, 409, 413, 422, 503),
  },
})

const getEndpoints = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/endpoints',
  summary: 'Endpoints',
  request: { params },
  responses: {
    200: jsonAnswer('The endpoints, oldest first', z.object({ endpoints: z.array(schemas.endpoint) })),
    ...problems(401, 403, 503),
  },
})

const getEndpoint = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/endpoints/{endpointId}',
  summary: 'An endpoint',
  request: { params: params.extend({ endpointId: schemas.endpointId }) },
  responses: { 200: jsonAnswer('The endpoint', schemas.endpoint), ...problems(401, 403, 404, 503) },
})

/** Registration of providers, their keys, wallets and endpoints. */
export function addProviderRoutes(app: App, gateway: Gateway): void {
  const { database } = gateway

  // Whatever is added under a provider is its own alone, unless somebody takes it out here.
  app.use('/providers/:id/*', requireOwner)

  app.openapi(createProvider, async (c) => {
    const { name, contact = null, requiresKey = false } = c.req.valid('json')
    const answer = await database.begin(async (sql) => {
      const provider = await insertProvider(sql, { name, contact, requiresKey })
      const { keyId, apiKey } = await issueApiKey(sql, provider.providerId)
      return { ...toProvider(provider), keyId, apiKey }
    })
    return c.json(answer, 201)
  })

  app.openapi(getProvider, async (c) => {
    const provider = await findProvider(database, c.req.valid('param').id)
    if (provider === undefined) throw new Refusal('unknown_provider')
    return c.json(toProvider(provider), 200)
  })

  app.openapi(createKey, async (c) => {
    const key = await issueApiKey(database, c.req.valid('param').id, c.req.valid('json').label)
    return c.json({ ...key, createdAt: key.createdAt.toISOString() }, 201)
  })

  app.openapi(getKeys, async (c) => {
    const keys = await listApiKeys(database, c.req.valid('param').id)
    return c.json(
      {
        keys: keys.map((key) => ({
          ...key,
          createdAt: key.createdAt.toISOString(),
          revokedAt: key.revokedAt?.toISOString() ?? null,
        })),
      },
      200,
    )
  })

  app.openapi(revokeKey, async (c) => {
    const { id, keyId } = c.req.valid('param')
    if (!(await revokeApiKey(database, id, keyId))) throw new Refusal('not_found', 'No such key')
    return c.body(null, 204)
  })

  app.openapi(createWallet, async (c) => {
    const { network, address } = c.req.valid('json')
    const providerId = c.req.valid('param').id
    const { served, payees } = networkOf(gateway, network)
    await payees.requirePayable(address)
    const wallet = await insertWallet(database, { providerId, chainId: served.network.chainId, address })
    if (wallet === undefined) throw new Refusal('wallet_exists')
    return c.json(toWallet(wallet), 201)
  })

  app.openapi(getWallets, async (c) => {
    const wallets = await listWallets(database, c.req.valid('param').id)
    return c.json({ wallets: wallets.map(toWallet) }, 200)
  })

  app.openapi(getWallet, async (c) => {
    const { id, walletId } = c.req.valid('param')
    const wallet = await findWallet(database, id, walletId)
    if (wallet === undefined) throw new Refusal('unknown_wallet')
    return c.json(toWallet(wallet), 200)
  })

  app.openapi(createEndpoint, async (c) => {
    const providerId = c.req.valid('param').id
    const body = c.req.valid('json')
    const wallets = body.walletIds
      ? await chooseWallets(gateway, providerId, body.walletIds)
      : [await chooseWallet(gateway, providerId, body.walletId, body.network)]

    const price = parseUsdc(body.pricing.usdcPerUnit)
    for (const { chainId } of wallets) {
      const { network } = requireNetwork(gateway, chainId).served
      const minimum = minimumPriceOn(gateway.settings, network)
      if (price >= minimum) continue
      throw new Refusal('price_below_minimum', `The least price on ${network.name} is ${formatUsdc(minimum)}`)
    }
    const url = parseResourceUrl('url', body.url)
    const endpoint = await insertEndpoint(database, {
      providerId,
      wallets,
      method: body.method ?? '*',
      url: url.href,
      path: url.pathname,
      price,
      description: body.description ?? '',
      mimeType: body.mimeType ?? 'application/json',
    })
    if (endpoint === undefined) throw new Refusal('endpoint_exists')
    return c.json(toEndpoint(endpoint), 201)
  })

  app.openapi(getEndpoints, async (c) => {
    const endpoints = await listEndpoints(database, c.req.valid('param').id)
    return c.json({ endpoints: endpoints.map(toEndpoint) }, 200)
  })

  app.openapi(getEndpoint, async (c) => {
    const { id, endpointId } = c.req.valid('param')
    const endpoint = await findEndpoint(database, id, endpointId)
    if (endpoint === undefined) throw new Refusal('unknown_endpoint')
    return c.json(toEndpoint(endpoint), 200)
  })
}

/** The wallet asked for, or the provider's oldest one on the network asked for. */
async function chooseWallet(
  gateway: Gateway,
  providerId: string,
  walletId: string | undefined,
  networkName: string | undefined,
): Promise<Wallet> {
  if (walletId !== undefined) {
    const wallet = await findWallet(gateway.database, providerId, walletId)
    if (wallet === undefined) throw new Refusal('unknown_wallet')
    if (
      networkName !== undefined &&
      networkOf(gateway, networkName).served.network.chainId !== wallet.chainId
    ) {
      throw new Refusal('invalid_field', `The wallet is not on ${networkName}`, {
        details: { field: 'network' },
      })
    }
    return wallet
  }
  const { chainId, name } = networkOf(gateway, networkName).served.network
  const wallets = await listWallets(gateway.database, providerId)
  const wallet = wallets.find((one) => one.chainId === chainId)
  if (wallet === undefined) throw new Refusal('unknown_wallet', `Register a wallet on ${name} first`)
  return wallet
}

/** The wallets of an endpoint that may be paid on several networks, in the order asked for. */
async function chooseWallets(
  gateway: Gateway,
  providerId: string,
  walletIds: readonly string[],
): Promise<Wallet[]> {
  const wallets = await Promise.all(walletIds.map((id) => findWallet(gateway.database, providerId, id)))
  const found = wallets.filter((wallet) => wallet !== undefined)
  if (found.length < wallets.length) throw new Refusal('unknown_wallet')
  const networks = found.map(({ chainId }) => networkByChainId(chainId))
  if (new Set(networks).size < networks.length) {
    throw new Refusal('invalid_field', 'walletIds: expected one wallet a network', {
      details: { field: 'walletIds' },
    })
  }
  if (new Set(networks.map(({ testnet }) => testnet)).size > 1) {
    throw new Refusal('networks_mixed', undefined, {
      details: { networks: networks.map(({ name }) => name) },
    })
  }
  return found
}

/**
 * Reads the full URL of a protected resource.
 *
 * @throws {Refusal} `invalid_field`
 */
export function parseResourceUrl(field: string, text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '') {
    throw new Refusal('invalid_field', `${field} must be a full http(s) URL without credentials`, {
      details: { field },
    })
  }
  return url
}

function toProvider(provider: Provider) {
  return { ...provider, createdAt: provider.createdAt.toISOString() }
}

function toWallet({ chainId, createdAt, ...wallet }: Wallet) {
  const { name, testnet } = networkByChainId(chainId)
  return { ...wallet, network: name, testnet, createdAt: createdAt.toISOString() }
}

function toEndpoint({ wallets, createdAt, price, ...endpoint }: Endpoint) {
  const networks = wallets.map(({ walletId, chainId }) => ({ walletId, ...networkByChainId(chainId) }))
  const [first] = networks
  if (first === undefined) throw new TypeError('An endpoint has a wallet')
  return {
    ...endpoint,
    walletId: first.walletId,
    network: first.name,
    networks: networks.map(({ name, walletId }) => ({ network: name, walletId })),
    testnet: first.testnet,
    pricing: { usdcPerUnit: formatUsdc(price) },
    createdAt: createdAt.toISOString(),
  }
}
