import { z } from '@hono/zod-openapi'
import { formatEther } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import { readGasTokenPrice, weiToUsd } from '#chain/settlementCost'
import { createCache } from '#process/cache'
import { formatUsdc } from '#protocol/amount'
import { triggerOfCode } from '#protocol/settlement'
import type { App } from '../http/app.ts'
import { cutPage } from '../http/cursor.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
import { listBatches, toPosition } from './batchQueries.ts'
import {
  type NetworkInterval,
  networkIntervals,
  readNetworkActivity,
  readSettlementTimes,
  type SettledSums,
} from './networkQueries.ts'
import { batchPositions } from './settlementBatches.ts'

const decimalEther = z.string().openapi({ example: '0.000123', description: "The chain's gas token" })

const settledSums = z.object({
  batches: z.int(),
  payments: z.int(),
  total_usdc: wire.decimalUsdc.openapi({ description: 'All that moved, fees included' }),
  gas_used: z.string(),
  gas_cost_ether: decimalEther,
  gas_cost_usdc: wire.decimalUsdc.openapi({ description: 'At the price of now' }),
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
            "From acceptance to the block, of this gateway's payments accepted then; null where they are too few",
        }),
      }),
    ),
    keepers: z
      .array(settledSums.extend({ address: wire.addressOut, lastBatchAt: wire.isoTime }))
      .openapi({ description: 'The most payments first, at most 50' }),
    gasToken: z.object({ usdc: wire.decimalUsdc, source: z.enum(['feed', 'configured']) }),
    indexedBlock: z.int(),
  })
  .openapi('NetworkActivity')

const getNetwork = route('get', '/network', {
  summary: 'What settled on a network, by whom and at which cost: 30 days, or 26 weeks',
  description:
    'Of everybody whose payments BatchSettlement settled, as the chain shows it. Days and weeks are UTC; one in which nothing settled is left out.',
  tags: ['Network'],
  query: z.object({ network: wire.oneNetwork, interval: z.enum(networkIntervals).default('day') }),
  responses: { 200: jsonAnswer('The network', networkActivity) },
})

export const networkBatches = z
  .object({
    batches: z.array(
      z.object({
        batch_id: z.int(),
        keeper: wire.addressOut,
        payment_count: z.int(),
        total_usdc: wire.decimalUsdc.openapi({ description: 'All that moved, fees included' }),
        gas_used: z.string().openapi({ description: "The transaction's" }),
        gas_cost_ether: decimalEther,
        tx_hash: wire.hashOut,
        trigger_type: z.string(),
        created_at: wire.isoTime,
      }),
    ),
    cursor: wire.cursorOut,
    network: wire.networkName,
    indexedBlock: z.int(),
  })
  .openapi('NetworkBatches')

const getNetworkBatches = route('get', '/network/batches', {
  summary: "Everybody's batches on a network, the newest first",
  tags: ['Network'],
  query: z.object({
    keeper: wire.address.optional(),
    from: wire.timeFilter,
    to: wire.timeFilter,
    limit: wire.limit,
    cursor: wire.cursor,
    network: wire.oneNetwork,
  }),
  responses: { 200: jsonAnswer('The batches', networkBatches) },
})

/** How long every caller, and every cache in between, gets the same answer. */
const keptMs = 10_000
const cached = `public, max-age=${keptMs / 1_000}`

const dayMs = 86_400_000
const shownDays = { day: 30, week: 26 * 7 } as const
const mostKeepers = 50
/** From how many payments on we say how long they took: fewer would tell of one buyer, or one provider. */
const leastTimes = 20

export function addNetworkRoutes(app: App, { sql, heads, networks, settings, now }: RouteOptions) {
  const latest = createCache({
    load: async (key: string) => {
      const [chainId, interval] = key.split(' ') as [string, NetworkInterval]
      const { served } = networks.ofChain(Number(chainId))
      return readActivity({ sql, heads, served, settings, interval, now: now() })
    },
    ttlMs: keptMs,
    max: networks.byChainId.size * networkIntervals.length,
    now,
  })

  app.openapi(getNetwork, async (c) => {
    const { network, interval } = c.req.valid('query')
    const activity = await latest.get(`${networks.named(network).served.network.chainId} ${interval}`)
    c.header('Cache-Control', cached)
    return c.json(activity, 200)
  })

  app.openapi(getNetworkBatches, async (c) => {
    const { keeper, from, to, limit = wire.defaultLimit, cursor, network: name } = c.req.valid('query')
    const { network } = networks.named(name).served
    const { chainId } = network
    const list = `network ${chainId} ${keeper} ${from?.getTime()} ${to?.getTime()}`
    const after = batchPositions.read(list, cursor)
    const indexedBlock = (await heads.of(chainId)) ?? 0
    const found = await listBatches(sql, { chainId, keeper, from, to }, { after, limit: limit + 1 })
    const { page, last } = cutPage(found, limit)
    c.header('Cache-Control', cached)
    return c.json(
      {
        batches: page.map((batch) => ({
          batch_id: batch.sequence,
          keeper: batch.keeper,
          payment_count: batch.paymentCount,
          total_usdc: formatUsdc(batch.total + batch.feeTotal),
          gas_used: String(batch.gasUsed),
          gas_cost_ether: formatEther(batch.gasCost),
          tx_hash: batch.txHash,
          trigger_type: triggerOfCode(batch.triggerCode) ?? 'unknown',
          created_at: wire.isoOfSeconds(batch.blockTime),
        })),
        cursor: last && batchPositions.write(list, toPosition(last)),
        network: network.name,
        indexedBlock,
      },
      200,
    )
  })
}

type ReadActivity = Pick<RouteOptions, 'sql' | 'heads' | 'settings'> & {
  served: ServedNetwork
  interval: NetworkInterval
  now: number
}

async function readActivity({ sql, heads, served, settings, interval, now }: ReadActivity) {
  const { network, client } = served
  const { chainId } = network
  const from = firstDay(interval, now)
  const indexedBlock = (await heads.of(chainId)) ?? 0
  const [{ total, intervals, keepers }, times, { usdPerToken, source }] = await Promise.all([
    readNetworkActivity(sql, { chainId, interval, from, keepers: mostKeepers }),
    readSettlementTimes(sql, { chainId, interval, from, least: leastTimes }),
    // Settlements can be shown without a node.
    readGasTokenPrice(client, network.ethUsdFeed, settings.gasTokenUsd).catch(() => ({
      usdPerToken: settings.gasTokenUsd,
      source: 'configured' as const,
    })),
  ])
  const toWire = ({ batches, payments, total, gasUsed, gasCost }: SettledSums) => ({
    batches,
    payments,
    total_usdc: formatUsdc(total),
    gas_used: String(gasUsed),
    gas_cost_ether: formatEther(gasCost),
    gas_cost_usdc: formatUsdc(weiToUsd(gasCost, usdPerToken)),
  })
  const timesByStart = new Map(
    times.map(({ startsAt, median, p95 }) => [startsAt.getTime(), { median, p95 }]),
  )
  return {
    network: network.name,
    testnet: network.testnet,
    interval,
    from: from.toISOString(),
    total: { ...toWire(total), keepers: total.keepers },
    intervals: intervals.map((one) => ({
      ...toWire(one),
      startsAt: one.startsAt.toISOString(),
      settlementSeconds: timesByStart.get(one.startsAt.getTime()) ?? null,
    })),
    keepers: keepers.map((keeper) => ({
      ...toWire(keeper),
      address: keeper.address,
      lastBatchAt: wire.isoOfSeconds(keeper.lastBlockTime),
    })),
    gasToken: { usdc: formatUsdc(usdPerToken), source },
    indexedBlock,
  }
}

/** The first UTC day that is shown; for weeks a Monday, so that none is shown in part. */
function firstDay(interval: NetworkInterval, now: number): Date {
  const first = new Date(now - (shownDays[interval] - 1) * dayMs)
  first.setUTCHours(0, 0, 0, 0)
  if (interval === 'week') first.setUTCDate(first.getUTCDate() - ((first.getUTCDay() + 6) % 7))
  return first
}
