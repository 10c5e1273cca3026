import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/database'
import { formatUsdc, parseUsdc } from '#protocol/amount'
import { networkByChainId, networkNames } from '#protocol/networks'
import { minimumPriceOn } from '../challenge/price.ts'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer, jsonBody, problems } from '../http/problems.ts'
import {
  decimalUsdc,
  endpointId,
  isoTime,
  networkName,
  ofProvider,
  pricing,
  providerId,
  resourceUrl,
  testnet,
  text,
  walletId,
} from '../http/wire.ts'
import type { GatewayNetworks } from '../networks.ts'
import { Refusal } from '../refusal.ts'
import { type Endpoint, findEndpoint, insertEndpoint, listEndpoints, methods } from '../registry/endpoints.ts'
import { findWallet, listWallets, type Wallet } from '../registry/wallets.ts'
import type { GatewaySettings } from '../settings.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

const newEndpoint = z
  .object({
    url: resourceUrl,
    method: z.enum(methods).optional().openapi({ description: 'Default: any method' }),
    pricing,
    walletId: walletId.optional().openapi({ description: "Default: the provider's wallet on `network`" }),
    network: networkName.optional(),
    walletIds: z
      .array(walletId)
      .min(1)
      .max(networkNames.length)
      .optional()
      .openapi({
        description:
          'Instead of `walletId` and `network`: the wallets that it may be paid on, one a network, the default first. ' +
          'Test and production networks are not mixed.',
      }),
    description: text(500).optional(),
    mimeType: text(200).min(1).optional(),
  })
  .openapi('NewEndpoint')

const endpoint = z
  .object({
    endpointId,
    providerId,
    walletId,
    network: networkName,
    networks: z
      .array(z.object({ network: networkName, walletId }))
      .openapi({ description: 'All that it may be paid on, the default first' }),
    testnet,
    method: z.enum(methods),
    url: z.string(),
    path: z.string(),
    pricing: z.object({ usdcPerUnit: decimalUsdc }),
    description: z.string(),
    mimeType: z.string(),
    createdAt: isoTime,
  })
  .openapi('Endpoint')

export const endpointList = z.object({ endpoints: z.array(endpoint) })

const createEndpoint = createRoute({
  ...owner,
  method: 'post',
  path: '/providers/{id}/endpoints',
  summary: 'Register an endpoint and its price',
  request: { params: ofProvider, body: jsonBody(newEndpoint) },
  responses: {
    201: jsonAnswer('The endpoint', endpoint),
    ...problems(400, 401, 403, 404, 409, 413, 422, 503),
  },
})

const getEndpoints = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/endpoints',
  summary: 'Endpoints',
  request: { params: ofProvider },
  responses: { 200: jsonAnswer('The endpoints, oldest first', endpointList), ...problems(401, 403, 503) },
})

const getEndpoint = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/endpoints/{endpointId}',
  summary: 'An endpoint',
  request: { params: ofProvider.extend({ endpointId }) },
  responses: { 200: jsonAnswer('The endpoint', endpoint), ...problems(401, 403, 404, 503) },
})

export type EndpointRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'minimumPrices'>
}

export function addEndpointRoutes(app: App, { sql, networks, settings }: EndpointRouteOptions): void {
  app.openapi(createEndpoint, async (c) => {
    const providerId = c.req.valid('param').id
    const body = c.req.valid('json')
    const wallets = body.walletIds
      ? await chooseWallets(sql, providerId, body.walletIds)
      : [await chooseWallet(sql, networks, { ...body, providerId })]

    const price = parseUsdc(body.pricing.usdcPerUnit)
    for (const { chainId } of wallets) {
      const { network } = networks.ofChain(chainId).served
      const minimum = minimumPriceOn(settings, network)
      if (price >= minimum) continue
      throw new Refusal('price_below_minimum', `The least price on ${network.name} is ${formatUsdc(minimum)}`)
    }
    const inserted = await insertEndpoint(sql, {
      providerId,
      wallets,
      method: body.method ?? '*',
      url: body.url.href,
      path: body.url.pathname,
      price,
      description: body.description ?? '',
      mimeType: body.mimeType ?? 'application/json',
    })
    if (inserted === undefined) throw new Refusal('endpoint_exists')
    return c.json(toEndpoint(inserted), 201)
  })

  app.openapi(getEndpoints, async (c) => {
    const endpoints = await listEndpoints(sql, c.req.valid('param').id)
    return c.json({ endpoints: endpoints.map(toEndpoint) }, 200)
  })

  app.openapi(getEndpoint, async (c) => {
    const { id, endpointId } = c.req.valid('param')
    const found = await findEndpoint(sql, id, endpointId)
    if (found === undefined) throw new Refusal('unknown_endpoint')
    return c.json(toEndpoint(found), 200)
  })
}

type WalletChoice = { providerId: string; walletId?: string | undefined; network?: string | undefined }

/** The wallet asked for, or the provider's oldest one on the network asked for. */
async function chooseWallet(
  sql: Database,
  networks: GatewayNetworks,
  { providerId, walletId, network: networkName }: WalletChoice,
): Promise<Wallet> {
  if (walletId === undefined) {
    const { chainId, name } = networks.named(networkName).served.network
    const wallets = await listWallets(sql, providerId)
    const wallet = wallets.find((one) => one.chainId === chainId)
    if (wallet === undefined) throw new Refusal('unknown_wallet', `Register a wallet on ${name} first`)
    return wallet
  }
  const wallet = await findWallet(sql, providerId, walletId)
  if (wallet === undefined) throw new Refusal('unknown_wallet')
  const chainId = networks.chainIdNamed(networkName)
  if (chainId !== undefined && chainId !== wallet.chainId) {
    throw new Refusal('invalid_field', `The wallet is not on ${networkName}`, {
      details: { field: 'network' },
    })
  }
  return wallet
}

/** The wallets of an endpoint that may be paid on several networks, in the order asked for. */
async function chooseWallets(
  sql: Database,
  providerId: string,
  walletIds: readonly string[],
): Promise<Wallet[]> {
  const wallets = await Promise.all(walletIds.map((id) => findWallet(sql, providerId, id)))
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

function toEndpoint({ wallets, createdAt, price, ...found }: Endpoint) {
  const networks = wallets.map(({ walletId, chainId }) => ({ walletId, ...networkByChainId(chainId) }))
  const [first] = networks
  if (first === undefined) throw new TypeError('An endpoint has a wallet')
  return {
    ...found,
    walletId: first.walletId,
    network: first.name,
    networks: networks.map(({ name, walletId }) => ({ network: name, walletId })),
    testnet: first.testnet,
    pricing: { usdcPerUnit: formatUsdc(price) },
    createdAt: createdAt.toISOString(),
  }
}
