import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/database'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer, jsonBody, problems } from '../http/problems.ts'
import {
  address,
  addressOut,
  isoTime,
  networkName,
  ofProvider,
  providerId,
  testnet,
  walletId,
} from '../http/wire.ts'
import type { GatewayNetworks } from '../networks.ts'
import { Refusal } from '../refusal.ts'
import { findWallet, insertWallet, listWallets, type Wallet } from '../registry/wallets.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

const newWallet = z.object({ network: networkName, address }).openapi('NewWallet')
const wallet = z
  .object({ walletId, providerId, network: networkName, testnet, address: addressOut, createdAt: isoTime })
  .openapi('Wallet')

const createWallet = createRoute({
  ...owner,
  method: 'post',
  path: '/providers/{id}/wallets',
  summary: 'Register a wallet to be paid on',
  request: { params: ofProvider, body: jsonBody(newWallet) },
  responses: { 201: jsonAnswer('The wallet', wallet), ...problems(400, 401, 403, 409, 413, 422, 503) },
})

const getWallets = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/wallets',
  summary: 'Wallets',
  request: { params: ofProvider },
  responses: {
    200: jsonAnswer('The wallets, oldest first', z.object({ wallets: z.array(wallet) })),
    ...problems(401, 403, 503),
  },
})

const getWallet = createRoute({
  ...owner,
  method: 'get',
  path: '/providers/{id}/wallets/{walletId}',
  summary: 'A wallet',
  request: { params: ofProvider.extend({ walletId }) },
  responses: { 200: jsonAnswer('The wallet', wallet), ...problems(401, 403, 404, 503) },
})

export function addWalletRoutes(
  app: App,
  { sql, networks }: { sql: Database; networks: GatewayNetworks },
): void {
  app.openapi(createWallet, async (c) => {
    const { network, address } = c.req.valid('json')
    const providerId = c.req.valid('param').id
    const { served, payees } = networks.named(network)
    await payees.requirePayable(address)
    const inserted = await insertWallet(sql, { providerId, chainId: served.network.chainId, address })
    if (inserted === undefined) throw new Refusal('wallet_exists')
    return c.json(toWallet(inserted), 201)
  })

  app.openapi(getWallets, async (c) => {
    const wallets = await listWallets(sql, c.req.valid('param').id)
    return c.json({ wallets: wallets.map(toWallet) }, 200)
  })

  app.openapi(getWallet, async (c) => {
    const { id, walletId } = c.req.valid('param')
    const found = await findWallet(sql, id, walletId)
    if (found === undefined) throw new Refusal('unknown_wallet')
    return c.json(toWallet(found), 200)
  })
}

function toWallet({ chainId, createdAt, ...found }: Wallet) {
  const { name, testnet } = networkByChainId(chainId)
  return { ...found, network: name, testnet, createdAt: createdAt.toISOString() }
}
