import { z } from '@hono/zod-openapi'
import { readGasTokenPrice, weiToUsd } from '@tollkeeper/chain/settlementCost'
import type { Database } from '@tollkeeper/ledger/store/database'
import { createCache } from '@tollkeeper/runtime/cache'
import { triggerOfCode } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { App } from '../http/app.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import type { RecordedHeads } from '../payments/records/recordedHeads.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { listBatches } from './batchQueries.ts'
import {
  type NetworkInterval,
  networkIntervals,
  readNetworkActivity,
  readSettlementTimes,
  type SettledSums,
} from './networkQueries.ts'
import { batchPositions } from './settlementBatches.ts'

const decimalEther = wire.ether.openapi({ example: '0.000123', description: "In the chain's gas token" })

const settledSums = z.object({
  batches: z.int(),
  payments: z.int(),
  total_usdc: wire.decimalUsdc.openapi({ description: 'Everything that moved, fees included' }),
  gas_used: wire.integerText,
  gas_cost_ether: decimalEther,
  gas_cost_usdc: wire.decimalUsdc.openapi({ description: 'At the current price of gas' }),
})

export const networkActivity = z
  .object({
    network: wire.networkName,
    testnet: wire.testnet,
    interval: z.enum(networkIntervals),
    from: wire.isoTime,
    total: settledSums.extend({ keepers: z.int() }),
    intervals: z.array(
      settledSums.extend({
        startsAt: wire.isoTime,
        settlementSeconds: z.object({ median: z.int(), p95: z.int() }).nullable().openapi({
          description:
            "Seconds from acceptance to the block, for this gateway's payments accepted in the interval; null if they are too few",
        }),
      }),
    ),
    keepers: z
      .array(settledSums.extend({ address: wire.addressOut, lastBatchAt: wire.isoSeconds }))
      .openapi({ description: 'Keepers with the most payments first, at most 50' }),
    gasToken: z.object({ usdc: wire.decimalUsdc, source: z.enum(['feed', 'configured']) }),
    indexedBlock: z.int(),
  })
  .openapi('NetworkActivity')

export const networkBatches = z
  .object({
    batches: z.array(
      z.object({
        batch_id: z.int(),
        keeper: wire.addressOut,
        payment_count: z.int(),
        total_usdc: wire.decimalUsdc.openapi({ description: 'Everything that moved, fees included' }),
        gas_used: wire.integerText.openapi({ description: 'Gas of the whole transaction' }),
        gas_cost_ether: decimalEther,
        tx_hash: wire.hashOut,
        trigger_type: z.string(),
        created_at: wire.isoSeconds,
      }),
    ),
    cursor: wire.cursorOut,
    network: wire.networkName,
    indexedBlock: z.int(),
  })
  .openapi('NetworkBatches')

/** Time in ms for which every caller, and every cache in between, gets the same answer. */
const keptMs = 10_000
const cached = `public, max-age=${keptMs / 1_000}`

const dayMs = 86_400_000
const shownDays = { day: 30, week: 26 * 7 } as const
const mostKeepers = 50
/** Minimum number of payments for which settlement times are shown: fewer would reveal something about one buyer or provider. */
const leastTimes = 20

export type NetworkRouteOptions = {
  sql: Database
  heads: RecordedHeads
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'gasTokenUsd'>
  now: () => number
}

const addNetworkRoute = view('/network', {
  summary: 'Settled payments of a network, with keepers and cost: 30 days or 26 weeks',
  description:
    'Covers all payments that BatchSettlement settled on the chain, by any keeper. Days and weeks are UTC; those in which nothing settled are left out.',
  tags: ['Network'],
  query: z.object({ network: wire.oneNetwork, interval: z.enum(networkIntervals).default('day') }),
  answer: ['The network', networkActivity],
  open: (options: NetworkRouteOptions) => {
    const { networks, now } = options
    const latest = createCache({
      load: async (key: string) => {
        const [chainId, interval] = key.split(' ') as [string, NetworkInterval]
        return readActivity(options, Number(chainId), interval)
      },
      ttlMs: keptMs,
      max: networks.byChainId.size * networkIntervals.length,
      now,
    })
    return async ({ network, interval }, c) => {
      const activity = await latest.get(`${networks.named(network).served.network.chainId} ${interval}`)
      c.header('Cache-Control', cached)
      return activity
    }
  },
})

const addBatchesRoute = view('/network/batches', {
  summary: 'All batches on a network, newest first',
  tags: ['Network'],
  query: z.object({
    keeper: wire.address.optional(),
    from: wire.timeFilter,
    to: wire.timeFilter,
    limit: wire.limit,
    cursor: wire.cursor,
    network: wire.oneNetwork,
  }),
  answer: ['The batches', networkBatches],
  open:
    ({ sql, heads, networks }: Pick<NetworkRouteOptions, 'sql' | 'heads' | 'networks'>) =>
    async ({ keeper, from, to, network: asked, ...page }, c) => {
      const { name: network, chainId } = networks.named(asked).served.network
      const list = `network ${chainId} ${keeper} ${from?.getTime()} ${to?.getTime()}`
      const indexedBlock = (await heads.of(chainId)) ?? 0
      const { rows, cursor } = await batchPositions.page(list, page, (page) =>
        listBatches(sql, { chainId, keeper, from, to }, page),
      )
      c.header('Cache-Control', cached)
      const batches = rows.map((batch) => ({
        batch_id: batch.sequence,
        keeper: batch.keeper,
        payment_count: batch.paymentCount,
        total_usdc: batch.total + batch.feeTotal,
        gas_used: batch.gasUsed,
        gas_cost_ether: batch.gasCost,
        tx_hash: batch.txHash,
        trigger_type: triggerOfCode(batch.triggerCode) ?? 'unknown',
        created_at: batch.blockTime,
      }))
      return { batches, cursor, network, indexedBlock }
    },
})

export function addNetworkRoutes(app: App, options: NetworkRouteOptions): void {
  addNetworkRoute(app, options)
  addBatchesRoute(app, options)
}

async function readActivity(
  { sql, heads, networks, settings, now }: NetworkRouteOptions,
  chainId: number,
  interval: NetworkInterval,
) {
  const { network, client } = networks.ofChain(chainId).served
  const from = firstDay(interval, now())
  const indexedBlock = (await heads.of(chainId)) ?? 0
  const [{ total, intervals, keepers }, times, { usdPerToken, source }] = await Promise.all([
    readNetworkActivity(sql, { chainId, interval, from, keepers: mostKeepers }),
    readSettlementTimes(sql, { chainId, interval, from, least: leastTimes }),
    // Settlements can be shown without a node.
    readGasTokenPrice(client, network, settings.gasTokenUsd).catch(() => ({
      usdPerToken: settings.gasTokenUsd,
      source: 'configured' as const,
    })),
  ])
  const priced = <Sums extends SettledSums>(sums: Sums) => ({
    ...sums,
    total_usdc: sums.total,
    gas_used: sums.gasUsed,
    gas_cost_ether: sums.gasCost,
    gas_cost_usdc: weiToUsd(sums.gasCost, usdPerToken),
  })
  const timesByStart = new Map(times.map((one) => [one.startsAt.getTime(), one]))
  return {
    network: network.name,
    testnet: network.testnet,
    interval,
    from,
    total: priced(total),
    intervals: intervals.map((one) => ({
      ...priced(one),
      settlementSeconds: timesByStart.get(one.startsAt.getTime()) ?? null,
    })),
    keepers: keepers.map((keeper) => ({ ...priced(keeper), lastBatchAt: keeper.lastBlockTime })),
    gasToken: { usdc: usdPerToken, source },
    indexedBlock,
  }
}

/** Returns the first UTC day that is shown; for weeks it is a Monday, so that every week shown is complete. */
function firstDay(interval: NetworkInterval, now: number): Date {
  const first = new Date(now - (shownDays[interval] - 1) * dayMs)
  first.setUTCHours(0, 0, 0, 0)
  if (interval === 'week') first.setUTCDate(first.getUTCDate() - ((first.getUTCDay() + 6) % 7))
  return first
}
