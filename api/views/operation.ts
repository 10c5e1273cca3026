import { z } from '@hono/zod-openapi'
import { formatEther } from 'viem'
import { createCache } from '#process/cache'
import { formatUsdc } from '#protocol/amount'
import type { App } from '../http/app.ts'
import { operatorsOnly } from '../http/operator.ts'
import { jsonAnswer } from '../http/problems.ts'
import { route } from '../http/route.ts'
import * as wire from '../http/wire.ts'
import type { RouteOptions } from '../routeOptions.ts'
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
    network: wire.networkName,
    testnet: wire.testnet,
    index: z.object({
      status: z.enum(['current', 'behind']),
      reason: z.enum(['missing', 'below_acted_block', 'stale']).nullable(),
      indexedBlock: z.int().nullable(),
      indexedAt: wire.isoTime.nullable(),
      chainBlock: z.int().nullable().openapi({ description: 'Null: no node answers' }),
      unreadable: counts.openapi({ description: 'Logs that it could not read, by reason' }),
    }),
    queue: z.array(
      z.object({
        wallet: wire.addressOut,
        providers: z.array(z.object({ providerId: wire.providerId, name: z.string() })),
        verified: z.int(),
        retrying: z.int(),
        settling: z.int().openapi({ description: 'In a batch that is under way, or not final yet' }),
        accumulated_usdc: wire.decimalUsdc.openapi({ description: 'What the wallet gets of what waits' }),
        oldestAt: wire.isoTime.nullable(),
      }),
    ),
    openBatches: counts,
    keepers: z.array(
      z.object({
        wallet: wire.addressOut,
        holder: z.string().nullable().openapi({ description: 'The keeper that has it; null: none has' }),
        pausedUntil: wire.isoTime.nullable(),
        pausedReason: z.string().nullable(),
        balance_ether: z.string().nullable().openapi({ description: 'Gas money on chain' }),
      }),
    ),
    gas: z.object({
      today_usdc: wire.decimalUsdc,
      last30Days_usdc: wire.decimalUsdc,
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
    webhooks: z.object({ pending: z.int(), oldestDueAt: wire.isoTime.nullable(), disabled: z.int() }),
    asOf: wire.isoTime,
  })
  .openapi('Operation')

const getOperation = route({
  ...operatorsOnly,
  method: 'get',
  path: '/operator/operation',
  summary: 'How the gateway is doing: alerts, index, queue by wallet, keepers and gas',
  responses: {
    200: jsonAnswer('As it was read, at most some seconds ago', operation),
  },
})

/** Reading the queue's depth reads the whole queue: whoever asks often gets the same answer. */
const keptMs = 5_000
/** Wallets shown of a network's queue, the oldest payment first. */
const mostWallets = 100

export function addOperationRoute(app: App, { sql, networks, settings, now }: RouteOptions): void {
  const served = [...networks.byChainId.values()].map((network) => network.served)
  const options = { sql, networks: served, maxLagBlocks: settings.maxIndexLagBlocks }
  const latest = createCache({
    load: async () => {
      const asOf = new Date(now())
      const operation = await readOperation(options, asOf)
      return {
        alerts: judgeAlerts(samplesOf(operation, asOf)),
        networks: operation.networks.map(toNetwork),
        webhooks: { ...operation.webhooks, oldestDueAt: wire.isoOrNull(operation.webhooks.oldestDueAt) },
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
        oldestAt: wire.isoOrNull(oldestAt),
      })),
    openBatches,
    keepers: keepers.map(({ address, holder, isHeld, pausedUntil, pausedReason, balance }) => ({
      wallet: address,
      holder: isHeld ? holder : null,
      pausedUntil: wire.isoOrNull(pausedUntil),
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
