import { z } from '@hono/zod-openapi'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { readGasCost, sumGasCost } from '@tollkeeper/ledger/batches/gasCosts'
import { isHeld } from '@tollkeeper/ledger/batches/holds'
import { listLeases } from '@tollkeeper/ledger/batches/leases'
import { countFailedSweeps } from '@tollkeeper/ledger/batches/sweeps'
import { countIndexGaps } from '@tollkeeper/ledger/facts/indexedHead'
import { readRecordHead, readToldBlock } from '@tollkeeper/ledger/facts/record'
import { indexLagLimit, judgeRecord } from '@tollkeeper/ledger/facts/recordState'
import { countBlockedPayers } from '@tollkeeper/ledger/queue/isolation'
import { countHeld, countOpenBatches, readQueueDepth } from '@tollkeeper/ledger/queue/queueDepth'
import { holdReasons } from '@tollkeeper/ledger/queue/stages'
import type { SalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import type { Database } from '@tollkeeper/ledger/store/database'
import { createCache } from '@tollkeeper/runtime/cache'
import { readReadiness } from '@tollkeeper/runtime/health'
import type { Address } from 'viem'
import { operatorsOnly } from '../http/operator.ts'
import { salesState, toSalesState } from '../http/salesState.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { view } from '../http/view.ts'
import * as wire from '../http/wire.ts'
import { deliveryBacklog } from '../notifications/deliveries.ts'
import { type ReadinessOptions, readiness, readinessProbes } from './health.ts'

const counts = z.record(z.string(), z.int())

const operatedNetwork = z
  .object({
    network: wire.networkName,
    testnet: wire.testnet,
    index: z.object({
      status: z.enum(['current', 'behind']),
      reason: z.enum(['missing', 'below_acted_block', 'stale']).nullable(),
      indexedBlock: wire.integer.nullable(),
      indexedAt: wire.isoSeconds.nullable(),
      chainBlock: wire.integer
        .nullable()
        .openapi({ description: 'Newest block of the chain; null: no node answers' }),
      unreadable: counts.openapi({ description: 'Number of logs that it could not read, by reason' }),
    }),
    queue: z.array(
      z.object({
        wallet: wire.addressOut,
        tabs: z.boolean().openapi({
          description:
            'Whether this row is about closed tabs. Its `wallet` is then the TabSettlement contract, because each tab pays many wallets',
        }),
        providers: z.array(z.object({ providerId: wire.providerId, name: z.string() })),
        verified: z.int(),
        retrying: z.int(),
        settling: z.int().openapi({ description: 'Number of payments in a batch that is not final yet' }),
        accumulated_usdc: wire.decimalUsdc.openapi({
          description: 'Amount that the wallet will receive from the waiting payments',
        }),
        oldestAt: wire.isoTime.nullable(),
      }),
    ),
    openBatches: counts,
    keepers: z.array(
      z.object({
        wallet: wire.addressOut,
        holder: z
          .string()
          .nullable()
          .openapi({ description: 'The keeper that holds the lease; null: none does' }),
        pausedUntil: wire.isoTime.nullable(),
        pausedReason: z.string().nullable(),
        balance_ether: wire.ether
          .nullable()
          .openapi({ description: 'The wallet’s balance on chain, which pays for gas' }),
      }),
    ),
    gas: z.object({
      today_usdc: wire.decimalUsdc,
      last30Days_usdc: wire.decimalUsdc,
      hold: z.string().nullable().openapi({ description: 'Why batches wait for cheaper gas' }),
    }),
    blockedPayers: z.int().openapi({
      description:
        'Payers whose payments are no longer settled, because they failed on chain after passing simulation',
    }),
    failedSweeps: z.int(),
  })
  .openapi('OperatedNetwork')

export const operation = z
  .object({
    readiness,
    sales: salesState,
    networks: z.array(operatedNetwork),
    webhooks: z.object({ pending: z.int(), oldestDueAt: wire.isoTime.nullable(), disabled: z.int() }),
    asOf: wire.isoTime,
  })
  .openapi('Operation')

/** Time in ms for which all callers get the same answer, because computing the queue's depth scans the whole queue. */
const keptMs = 5_000
/** Maximum number of wallets shown per network's queue; wallets with the oldest payments come first. */
const mostWallets = 100

const monthMs = 30 * 86_400_000

export type OperationRouteOptions = ReadinessOptions & {
  settings: Pick<GatewaySettings, 'maxIndexLagBlocks'>
  sales: SalesSwitch
  now: () => number
}

/** The state of the whole gateway: its readiness, what is in the database, and what the chain reports about heads and gas balances. */
export const addOperationRoute = view('/operator/operation', {
  ...operatorsOnly,
  summary: 'How the gateway is doing: alerts, index, queue by wallet, keepers and gas',
  answer: ['The state, at most a few seconds old', operation],
  open: (options: OperationRouteOptions) => {
    const { sql, networks, settings, sales, now } = options
    const probes = readinessProbes(options)
    const latest = createCache({
      load: async () => {
        const asOf = new Date(now())
        const [readiness, operated, backlog, [disabled], stop] = await Promise.all([
          readReadiness(probes),
          Promise.all(
            [...networks.byChainId.values()].map(({ served }) =>
              readNetwork(sql, served, settings.maxIndexLagBlocks, asOf),
            ),
          ),
          deliveryBacklog(sql),
          sql<[{ count: number }]>`
            select count(*)::int as count from webhook where disabled_at is not null and deleted_at is null`,
          sales.read(),
        ])
        return {
          readiness,
          sales: toSalesState(stop),
          networks: operated,
          webhooks: { ...backlog, disabled: disabled.count },
          asOf,
        }
      },
      ttlMs: keptMs,
      max: 1,
      now,
    })
    return () => Promise.resolve(latest.get('operation'))
  },
})

async function readNetwork(sql: Database, served: ServedNetwork, maxLagBlocks: bigint, now: Date) {
  const { network, client, token } = served
  const { chainId } = network
  const [recorded, told, chainBlock, unreadable, depths, openBatches, leases] = await Promise.all([
    readRecordHead(sql, chainId),
    readToldBlock(sql, chainId),
    client.getBlockNumber({ cacheTime: 0 }).catch(() => null),
    countIndexGaps(sql, chainId),
    readQueueDepth(sql, { chainId, token }),
    countOpenBatches(sql, chainId),
    listLeases(sql, chainId),
  ])
  const shown = depths
    .toSorted((a, b) => (a.oldestAt?.getTime() ?? Infinity) - (b.oldestAt?.getTime() ?? Infinity))
    .slice(0, mostWallets)
  const payees = shown.map(({ payee }) => payee)
  const [providers, balances, gasToday, gasOfMonth, isTooDear, held, blockedPayers, failedSweeps] =
    await Promise.all([
      readPayeeProviders(sql, chainId, payees),
      Promise.all(leases.map(({ address }) => client.getBalance({ address }).catch(() => null))),
      readGasCost(sql, chainId, now),
      sumGasCost(sql, chainId, new Date(now.getTime() - monthMs)),
      isHeld(sql, chainId, now),
      countHeld(sql, { chainId, token }),
      countBlockedPayers(sql, chainId),
      countFailedSweeps(sql, chainId),
    ])
  // If no node answers, the record can only be compared with what providers have been notified of.
  const index = judgeRecord(
    recorded,
    told,
    chainBlock ?? recorded?.readNumber ?? 0n,
    indexLagLimit(network, maxLagBlocks),
  )
  const { head } = index
  return {
    network: network.name,
    testnet: network.testnet,
    index: {
      status: index.status,
      reason: index.status === 'behind' ? index.reason : null,
      indexedBlock: head?.readNumber ?? null,
      indexedAt: head?.blockTime ?? null,
      chainBlock,
      unreadable: Object.fromEntries(unreadable ?? []),
    },
    queue: shown.map((depth) => ({
      ...depth,
      wallet: depth.payee,
      tabs: depth.isTabs,
      providers: providers.get(depth.payee) ?? [],
      accumulated_usdc: depth.amount,
    })),
    openBatches,
    keepers: leases.map(({ address, holder, isHeld, ...lease }, index) => ({
      ...lease,
      wallet: address,
      holder: isHeld ? holder : null,
      balance_ether: balances[index] ?? null,
    })),
    gas: {
      today_usdc: gasToday,
      last30Days_usdc: gasOfMonth,
      hold: isTooDear ? 'gas_price' : (holdReasons.find((reason) => held[reason]) ?? null),
    },
    blockedPayers,
    failedSweeps,
  }
}

/** Reads the providers that own these wallets. */
async function readPayeeProviders(sql: Database, chainId: number, payees: readonly Address[]) {
  const rows = await sql<{ address: Address; providerId: string; name: string }[]>`
    select w.address, p.id as "providerId", p.name
    from wallet w join provider p on p.id = w.provider_id
    where w.chain_id = ${chainId} and w.address = any(${payees as string[]})
    order by p.id`
  return Map.groupBy(rows, ({ address }) => address)
}
