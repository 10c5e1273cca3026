import { z } from '@hono/zod-openapi'
import { changeRegistry, type RecordChange } from '@tollkeeper/ledger/registry/registryChanges'
import type { Database, Transaction } from '@tollkeeper/ledger/store/database'
import { networkByChainId } from '@tollkeeper/sdk/protocol/networks'
import { answerRead } from '../http/answerJson.ts'
import type { App } from '../http/app.ts'
import { changerOf, ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer } from '../http/problems.ts'
import { Refusal } from '../http/refusal.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import { toEndpoint } from './endpointRoutes.ts'
import { findEndpointsPaidTo, updateEndpoint } from './endpoints.ts'
import type { GatewayNetworks } from './networks.ts'
import {
  findWallet,
  findWalletByAddress,
  insertWallet,
  listWallets,
  retireWallet,
  type Wallet,
} from './wallets.ts'

const owner = { ...ownersOnly, tags: ['Providers'] }

const newWallet = z.strictObject({ network: wire.networkName, address: wire.address }).openapi('NewWallet')
export const wallet = z
  .object({
    walletId: wire.walletId,
    providerId: wire.providerId,
    network: wire.networkName,
    testnet: wire.testnet,
    address: wire.addressOut,
    createdAt: wire.isoTime,
    retiredAt: wire.isoTime.nullable().openapi({
      description: 'Since when no endpoint may use it; payments signed for it still settle to it',
    }),
  })
  .openapi('Wallet')
const replacedWallet = wallet
  .extend({
    replaces: wire.walletId,
    endpoints: z
      .array(wire.endpointId)
      .openapi({ description: 'The endpoints that are paid to it from now on' }),
  })
  .openapi('ReplacedWallet')

const createWallet = route('post', '/providers/{id}/wallets', {
  ...owner,
  summary: 'Register a wallet for receiving payments',
  body: newWallet,
  refuses: [409],
  responses: { 201: jsonAnswer('The wallet', wallet) },
})

const getWallets = route('get', '/providers/{id}/wallets', {
  ...owner,
  summary: 'List wallets',
  responses: { 200: jsonAnswer('The wallets, oldest first', z.object({ wallets: z.array(wallet) })) },
})

const getWallet = route('get', '/providers/{id}/wallets/{walletId}', {
  ...owner,
  summary: 'Read a wallet',
  responses: { 200: jsonAnswer('The wallet', wallet) },
})

const replaceWallet = route('patch', '/providers/{id}/wallets/{walletId}', {
  ...owner,
  summary: 'Replace a wallet with another address, in all endpoints at once',
  description:
    'The old wallet is retired. Payments whose challenge was issued before settle to the address that they were signed for.',
  body: z.strictObject({ address: wire.address }).openapi('WalletReplacement'),
  refuses: [409],
  responses: { 200: jsonAnswer('The wallet that replaces it', replacedWallet) },
})

const deleteWallet = route('delete', '/providers/{id}/wallets/{walletId}', {
  ...owner,
  summary: 'Retire a wallet that no endpoint uses',
  refuses: [409],
  responses: { 204: { description: 'Retired' } },
})

export type WalletRouteOptions = {
  sql: Database
  networks: GatewayNetworks
}

export function addWalletRoutes(app: App, { sql, networks }: WalletRouteOptions): void {
  app.openapi(createWallet, async (c) => {
    const { network, address } = c.req.valid('json')
    const providerId = c.req.valid('param').id
    const { served, payees } = networks.named(network)
    await payees.requirePayable(address)
    const registered = await changeRegistry(sql, changerOf(c), (tx, record) =>
      registerWallet(tx, record, { providerId, chainId: served.network.chainId, address }),
    )
    if (registered === undefined) throw new Refusal('unknown_provider')
    return c.json(toWallet(registered), 201)
  })

  app.openapi(replaceWallet, async (c) => {
    const { id: providerId, walletId } = c.req.valid('param')
    const { address } = c.req.valid('json')
    const found = await findWallet(sql, providerId, walletId)
    if (found === undefined) throw new Refusal('unknown_wallet')
    await networks.ofChain(found.chainId).payees.requirePayable(address)
    const replaced = await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const before = await findWallet(tx, providerId, walletId)
      if (before?.retiredAt !== null) throw new Refusal('wallet_retired')
      if (before.address === address) throw new Refusal('wallet_exists')
      const { chainId } = before
      const existing = await findWalletByAddress(tx, { providerId, chainId, address })
      const wallet =
        existing?.retiredAt === null
          ? existing
          : await registerWallet(tx, record, { providerId, chainId, address })
      const endpoints = await findEndpointsPaidTo(tx, walletId)
      for (const endpoint of endpoints) {
        const wallets = endpoint.wallets.map((one) => (one.walletId === walletId ? wallet : one))
        const after = await updateEndpoint(tx, { ...endpoint, wallets })
        await record(endpoint.endpointId, toEndpoint(endpoint), toEndpoint(after))
      }
      await record(walletId, toWallet(before), toWallet(await retireWallet(tx, walletId)))
      return { wallet, endpoints: endpoints.map(({ endpointId }) => endpointId) }
    })
    if (replaced === undefined) throw new Refusal('unknown_provider')
    const { wallet, endpoints } = replaced
    return c.json({ ...toWallet(wallet), replaces: walletId, endpoints }, 200)
  })

  app.openapi(deleteWallet, async (c) => {
    const { id: providerId, walletId } = c.req.valid('param')
    await changeRegistry(sql, changerOf(c), async (tx, record) => {
      const before = await findWallet(tx, providerId, walletId)
      if (before === undefined) throw new Refusal('unknown_wallet')
      const endpoints = await findEndpointsPaidTo(tx, walletId)
      if (endpoints.length > 0) {
        const ids = endpoints.map(({ endpointId }) => endpointId)
        throw new Refusal(
          'wallet_in_use',
          `Replace it in these endpoints first: ${ids.slice(0, 10).join(', ')}`,
          {
            details: { endpoints: ids },
          },
        )
      }
      await record(walletId, toWallet(before), toWallet(await retireWallet(tx, walletId)))
    })
    return c.body(null, 204)
  })

  app.openapi(getWallets, async (c) => {
    const wallets = await listWallets(sql, c.req.valid('param').id)
    return answerRead(c, { wallets: wallets.map(toWallet) })
  })

  app.openapi(getWallet, async (c) => {
    const { id, walletId } = c.req.valid('param')
    const found = await findWallet(sql, id, walletId)
    if (found === undefined) throw new Refusal('unknown_wallet')
    return c.json(toWallet(found), 200)
  })
}

/** Registers a wallet, or reactivates a retired one. */
async function registerWallet(
  tx: Transaction,
  record: RecordChange,
  wallet: Pick<Wallet, 'providerId' | 'chainId' | 'address'>,
): Promise<Wallet> {
  const before = await findWalletByAddress(tx, wallet)
  const inserted = await insertWallet(tx, wallet)
  if (inserted === undefined) throw new Refusal('wallet_exists')
  await record(inserted.walletId, before ? toWallet(before) : null, toWallet(inserted))
  return inserted
}

function toWallet({ chainId, ...found }: Wallet) {
  const { name, testnet } = networkByChainId(chainId)
  return { ...found, network: name, testnet }
}
