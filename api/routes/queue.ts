import { createRoute, z } from '@hono/zod-openapi'
import type { Database } from '#ledger/database'
import { estimatedSettlement, firedTrigger, type TriggerSettings, timeTriggerAt } from '#ledger/triggers'
import { formatUsdc } from '#protocol/amount'
import { networkByChainId } from '#protocol/networks'
import type { App } from '../http/app.ts'
import { ownersOnly } from '../http/authenticate.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import {
  addressOut,
  decimalUsdc,
  indexedBlocks,
  isoOrNull,
  isoTime,
  networkName,
  ofProvider,
  triggerName,
  walletId,
} from '../http/wire.ts'
import type { GatewayNetworks } from '../networks.ts'
import { fromIndex, type IndexedHeads } from '../portal/queries/indexedHead.ts'
import { noWork, readProviderWork, type WalletWork } from '../portal/queries/providerQueue.ts'
import { listWallets, type Wallet } from '../registry/wallets.ts'
import type { GatewaySettings } from '../settings.ts'

const walletQueue = z
  .object({
    walletId,
    wallet: addressOut,
    network: networkName,
    payments: z.int().openapi({ description: 'Waiting: what the triggers count' }),
    accumulated_usdc: decimalUsdc.openapi({ description: 'What the wallet receives of them' }),
    settlingPayments: z.int().openapi({ description: 'In a batch that is under way' }),
    settling_usdc: decimalUsdc,
    retryingPayments: z.int().openapi({ description: 'Failed before and waiting for their next attempt' }),
    fired: triggerName
      .nullable()
      .openapi({ description: 'The trigger that has fired; the keeper takes it up within moments' }),
    settlesAt: isoTime
      .nullable()
      .openapi({ description: 'At the latest, if nothing else is queued; null for an empty queue' }),
    triggers: z.object({
      amount: z.object({ threshold_usdc: decimalUsdc, raised_threshold_usdc: decimalUsdc }),
      count: z.object({ threshold: z.int(), raisedThreshold: z.int() }),
      time: z.object({ since: isoTime.nullable(), at: isoTime.nullable(), seconds: z.int() }),
      high_value: z.object({ largest_usdc: decimalUsdc, threshold_usdc: decimalUsdc }),
      expiry: z.object({ validBefore: isoTime.nullable(), at: isoTime.nullable() }),
    }),
  })
  .openapi('WalletQueue')

export const queue = z
  .object({
    wallets: z.array(walletQueue),
    asOf: isoTime.openapi({ description: "The gateway's clock, for countdowns" }),
    indexedBlocks,
  })
  .openapi('ProviderQueue')

const getQueue = createRoute({
  ...ownersOnly,
  tags: ['Provider views'],
  method: 'get',
  path: '/providers/{id}/queue',
  summary: 'What waits for each wallet, and how far each trigger is from firing',
  request: { params: ofProvider },
  responses: { 200: jsonAnswer('The queues', queue), ...problems(401, 403, 503) },
})

export type QueueRouteOptions = {
  sql: Database
  heads: IndexedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'triggers'>
  now: () => number
}

export function addQueueRoute(app: App, { sql, heads, networks, settings, now }: QueueRouteOptions): void {
  app.openapi(getQueue, async (c) => {
    const providerId = c.req.valid('param').id
    const asOf = new Date(now())
    const [indexedBlocks, all] = await Promise.all([
      heads.requireOfProvider(providerId),
      listWallets(sql, providerId),
    ])
    const tokens = [...new Set(all.map(({ chainId }) => chainId))].map((chainId) => ({
      chainId,
      token: networks.ofChain(chainId).served.token,
    }))
    const work = await fromIndex(readProviderWork(sql, { providerId, tokens, now: asOf }))
    const wallets = all.map((wallet) =>
      toWalletQueue(wallet, work.get(wallet.walletId) ?? noWork, settings.triggers, asOf),
    )
    return c.json({ wallets, asOf: asOf.toISOString(), indexedBlocks }, 200)
  })
}

function toWalletQueue(
  { walletId, address, chainId }: Wallet,
  { waiting, settlingPayments, settlingAmount, retryingPayments }: WalletWork,
  triggers: TriggerSettings,
  now: Date,
) {
  // Whether gas is dear just now is the keeper's to find out; both thresholds are shown.
  const fired = waiting && firedTrigger(waiting, triggers, 0n, now)
  const settlesAt = waiting && (fired === null ? estimatedSettlement(waiting, triggers) : now)
  const expiresAt = waiting && new Date(Number(waiting.firstValidBefore) * 1000)
  return {
    walletId,
    wallet: address,
    network: networkByChainId(chainId).name,
    payments: waiting?.paymentCount ?? 0,
    accumulated_usdc: formatUsdc(waiting?.amount ?? 0n),
    settlingPayments,
    settling_usdc: formatUsdc(settlingAmount),
    retryingPayments,
    fired,
    settlesAt: isoOrNull(settlesAt),
    triggers: {
      amount: {
        threshold_usdc: formatUsdc(triggers.amount),
        raised_threshold_usdc: formatUsdc(triggers.raisedAmount),
      },
      count: { threshold: triggers.count, raisedThreshold: triggers.raisedCount },
      time: {
        since: isoOrNull(waiting?.firstQueuedAt),
        at: isoOrNull(waiting && timeTriggerAt(waiting, triggers)),
        seconds: triggers.timeMs / 1000,
      },
      high_value: {
        largest_usdc: formatUsdc(waiting?.largestPayment ?? 0n),
        threshold_usdc: formatUsdc(triggers.highValue),
      },
      expiry: {
        validBefore: isoOrNull(expiresAt),
        at: isoOrNull(expiresAt && new Date(expiresAt.getTime() - triggers.expiryLeadMs)),
      },
    },
  }
}
