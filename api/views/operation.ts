import { createRoute, z } from '@hono/zod-openapi'
import { formatEther } from 'viem'
import type { Database } from '#ledger/store/database'
import { createCache } from '#process/cache'
import { formatUsdc } from '#protocol/amount'
import type { App } from '../http/app.ts'
import { operatorsOnly } from '../http/operator.ts'
import { jsonAnswer, problems } from '../http/problems.ts'
import type { GatewaySettings } from '../http/settings.ts'
import {
  addressOut,
  decimalUsdc,
  isoOrNull,
  isoTime,
  networkName,
  providerId,
  testnet,
} from '../http/wire.ts'
import type { GatewayNetworks } from '../registry/networks.ts'
import { judgeAlerts } from './judgeAlerts.ts'
import { type OperatedNetwork, readOperation, samplesOf, timeOf } from './operationQueries.ts'

const alert = z
  .object({
    name: z.string().openapi({ example: 'QueueTooOld' }),
    severity: z.enum(['page', 'ticket']),
    for: z.string().nullable().openapi({ description: 'For how long it must hold until Prometheus tells' }),
    summary: z.string(),
    action: z.string().openapi({ description: 'What it means and what to do' }),
  })
  .openapi('FiringAlert')

const counts = z.record(z.string(), z.int())

const operatedNetwork = z
  .object({
    network: networkName,
    testnet,
    index: z.object({
      status: z.enum(['current', 'behind']),
      reason: z.enum(['missing', 'below_acted_block', 'stale']).nullable(),
      indexedBlock: z.int().nullable(),
      indexedAt: isoTime.nullable(),
      chainBlock: z.int().nullable().openapi({ description: 'Null: no node answers' }),
      unreadable: counts.openapi({ description: 'Logs that it could not read, by reason' }),
    }),
    queue: z.array(
      z.object({
        wallet: addressOut,
        providers: z.array(z.object({ providerId, name: z.string() })),
        verified: z.int(),
        retrying: z.int(),
        settling: z.int().openapi({ description: 'In a batch that is under way, or not final yet' }),
        accumulated_usdc: decimalUsdc.openapi({ description: 'What the wallet gets of what waits' }),
        oldestAt: isoTime.nullable(),
      }),
    ),
    openBatches: counts,
    keepers: z.array(
      z.object({
        wallet: addressOut,
        holder: z.string().nullable().openapi({ description: 'The keeper that has it; null: none has' }),
        pausedUntil: isoTime.nullable(),
        pausedReason: z.string().nullable(),
        balance_ether: z.string().nullable().openapi({ description: 'Gas money on chain' }),
      }),
    ),
    gas: z.object({
      today_usdc: decimalUsdc,
      last30Days_usdc: decimalUsdc,
      hold: z.string().nullable().openapi({ description: 'Why batches wait for cheaper gas' }),
    }),
    givenUpPayers: z
      .int()
      .openapi({ description: 'Payers that are not tried any more: they lied to simulations' }),
    failedSweeps: z.int(),
  })
  .openapi('OperatedNetwork')

export const operation = z
  .object({
    alerts: z.array(alert).openapi({
      description: 'What a look at the database and the chain can judge; the rest is for Prometheus',
    }),
    networks: z.array(operatedNetwork),
    webhooks: z.object({ pending: z.int(), oldestDueAt: isoTime.nullable(), disabled: z.int() }),
    asOf: isoTime,
  })
  .openapi('Operation')

const getOperation = createRoute({
  ...operatorsOnly,
  method: 'get',
  path: '/operator/operation',
  summary: 'How the gateway is doing: alerts, index, queue by wallet, keepers and gas',
  responses: {
    200: jsonAnswer('As it was read, at most some seconds ago', operation),
    ...problems(401, 503),
  },
})

/** How long all callers get the same answer: the queue's depth costs a reading of the whole queue. */
const keptMs = 5_000
/** Most wallets that we show of a network's queue, the oldest payment first. */
const mostWallets = 100

export type OperationRouteOptions = {
  sql: Database
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'maxIndexLagBlocks'>
  now: () => number
}

export function addOperationRoute(app: App, { sql, networks, settings, now }: OperationRouteOptions): void {
  const served = [...networks.byChainId.values()].map((network) => network.served)
  const options = { sql, networks: served, maxLagBlocks: settings.maxIndexLagBlocks }
  const latest = createCache({
    load: async () => {
      const asOf = new Date(now())
      const operation = await readOperation(options, asOf)
      return {
        alerts: judgeAlerts(samplesOf(operation, asOf)),
        networks: operation.networks.map(toNetwork),
        webhooks: { ...operation.webhooks, oldestDueAt: isoOrNull(operation.webhooks.oldestDueAt) },
        asOf: asOf.toISOString(),
      }
    },
    ttlMs: keptMs,
    max: 1,
    now,
  })
  app.openapi(getOperation, async (c) => c.json(await latest.get('operation'), 200))
}

function toNetwork(operated: OperatedNetwork) {
  const { served, index, chainBlock, unreadable, queue, keepers, openBatches } = operated
  const { head } = index
  return {
    network: served.network.name,
    testnet: served.network.testnet,
    index: {
      status: index.status,
      reason: index.status === 'behind' ? index.reason : null,
      indexedBlock: head && Number(head.readNumber),
      indexedAt: head && timeOf(head.blockTime).toISOString(),
      chainBlock: chainBlock === null ? null : Number(chainBlock),
      unreadable: Object.fromEntries(unreadable),
    },
    queue: queue
      .toSorted((a, b) => (a.oldestAt?.getTime() ?? Infinity) - (b.oldestAt?.getTime() ?? Infinity))
      .slice(0, mostWallets)
      .map(({ payee, providers, verified, retrying, settling, amount, oldestAt }) => ({
        wallet: payee,
        providers: providers.map(({ providerId, name }) => ({ providerId, name })),
        verified,
        retrying,
        settling,
        accumulated_usdc: formatUsdc(amount),
        oldestAt: isoOrNull(oldestAt),
      })),
    openBatches,
    keepers: keepers.map(({ address, holder, isHeld, pausedUntil, pausedReason, balance }) => ({
      wallet: address,
      holder: isHeld ? holder : null,
      pausedUntil: isoOrNull(pausedUntil),
      pausedReason,
      balance_ether: balance === null ? null : formatEther(balance),
    })),
    gas: {
      today_usdc: formatUsdc(operated.gasToday),
      last30Days_usdc: formatUsdc(operated.gasOfMonth),
      hold: operated.hold,
    },
    givenUpPayers: operated.givenUpPayers,
    failedSweeps: operated.failedSweeps,
  }
}
