import { type Address, formatEther } from 'viem'
import type { ServedNetwork } from '#chain/servedNetworks'
import { readGasCost, sumGasCost } from '#ledger/batches/gasCosts'
import { isHeld } from '#ledger/batches/holds'
import { type ListedLease, listLeases } from '#ledger/batches/leases'
import { countFailedSweeps } from '#ledger/batches/sweeps'
import { countQuarantined } from '#ledger/facts/indexedHead'
import { readRecordHead, readToldBlock } from '#ledger/facts/record'
import { judgeRecord, type RecordState } from '#ledger/facts/recordState'
import { countGivenUpPayers } from '#ledger/queue/quarantine'
import { countHeld, countOpenBatches, type QueueDepth, readQueueDepth } from '#ledger/queue/queueDepth'
import { holdReasons } from '#ledger/queue/stages'
import type { Database } from '#ledger/store/database'
import { deliveryBacklog } from '../telling/deliveries.ts'
import type { Sample } from './judgeAlerts.ts'

export type OperatedNetwork = {
  served: ServedNetwork
  index: RecordState
  /** The chain's own head; null: no node answers. */
  chainBlock: bigint | null
  /** Logs that the index could not read, by reason. */
  unreadable: ReadonlyMap<string, number>
  queue: (QueueDepth & { providers: { providerId: string; name: string }[] })[]
  openBatches: Record<string, number>
  /** `balance` in wei; null: no node answers. */
  keepers: (ListedLease & { balance: bigint | null })[]
  gasToday: bigint
  gasOfMonth: bigint
  hold: string | null
  /** Payments that run out soon, and for which the day's budget has nothing left. */
  overBudget: number
  givenUpPayers: number
  failedSweeps: number
}

export type Operation = {
  networks: OperatedNetwork[]
  webhooks: { pending: number; oldestDueAt: Date | null; disabled: number }
}

export type ReadOperationOptions = { sql: Database; networks: readonly ServedNetwork[]; maxLagBlocks: bigint }

const monthMs = 30 * 86_400_000

/** How the whole gateway is doing: what is in the database, and what the chain says of heads and gas money. */
export async function readOperation(
  { sql, networks, maxLagBlocks }: ReadOperationOptions,
  now: Date,
): Promise<Operation> {
  const [operated, backlog, [disabled]] = await Promise.all([
    Promise.all(networks.map((served) => readNetwork(sql, served, maxLagBlocks, now))),
    deliveryBacklog(sql),
    sql<[{ count: number }]>`
      select count(*)::int as count from webhook where disabled_at is not null and deleted_at is null`,
  ])
  return { networks: operated, webhooks: { ...backlog, disabled: disabled.count } }
}

async function readNetwork(
  sql: Database,
  served: ServedNetwork,
  maxLagBlocks: bigint,
  now: Date,
): Promise<OperatedNetwork> {
  const { network, client, token } = served
  const { chainId } = network
  const [recorded, told, chainBlock, unreadable, depths, openBatches, leases] = await Promise.all([
    readRecordHead(sql, chainId),
    readToldBlock(sql, chainId),
    client.getBlockNumber({ cacheTime: 0 }).catch(() => null),
    countQuarantined(sql, chainId),
    readQueueDepth(sql, { chainId, token }),
    countOpenBatches(sql, chainId),
    listLeases(sql, chainId),
  ])
  const [providers, balances, gasToday, gasOfMonth, isTooDear, held, givenUpPayers, failedSweeps] =
    await Promise.all([
      readPayeeProviders(
        sql,
        chainId,
        depths.map(({ payee }) => payee),
      ),
      Promise.all(leases.map(({ address }) => client.getBalance({ address }).catch(() => null))),
      readGasCost(sql, chainId, now),
      sumGasCost(sql, chainId, new Date(now.getTime() - monthMs)),
      isHeld(sql, chainId, now),
      countHeld(sql, { chainId, token }),
      countGivenUpPayers(sql, chainId),
      countFailedSweeps(sql, chainId),
    ])
  return {
    served,
    // If no node answers, we can compare the record only with what providers were told.
    index: judgeRecord(recorded, told, chainBlock ?? recorded?.readNumber ?? 0n, maxLagBlocks),
    chainBlock,
    unreadable: unreadable ?? new Map(),
    queue: depths.map((depth) => ({ ...depth, providers: providers.get(depth.payee) ?? [] })),
    openBatches,
    keepers: leases.map((lease, index) => ({ ...lease, balance: balances[index] ?? null })),
    gasToday,
    gasOfMonth,
    hold: isTooDear ? 'gas_price' : (holdReasons.find((reason) => held[reason]) ?? null),
    overBudget: held.gas_budget ?? 0,
    givenUpPayers,
    failedSweeps,
  }
}

/** Whose wallets these are. */
async function readPayeeProviders(sql: Database, chainId: number, payees: readonly Address[]) {
  const rows = await sql<{ address: Address; providerId: string; name: string }[]>`
    select w.address, p.id as "providerId", p.name
    from wallet w join provider p on p.id = w.provider_id
    where w.chain_id = ${chainId} and w.address = any(${payees as string[]})
    order by p.id`
  return Map.groupBy(rows, ({ address }) => address)
}

/** The same as samples of the metrics that the alerts' rules name. */
export function samplesOf({ networks, webhooks }: Operation, now: Date): Sample[] {
  const ageOf = (time: Date | null) =>
    time === null ? 0 : Math.max(0, (now.getTime() - time.getTime()) / 1000)
  return [
    {
      metric: 'tollkeeper_api_webhooks_overdue_seconds',
      labels: {},
      value: ageOf(webhooks.oldestDueAt),
    },
    ...networks.flatMap(
      ({ served, index, unreadable, queue, keepers, failedSweeps, overBudget }): Sample[] => {
        const network = served.network.name
        const sample = (metric: string, value: number, labels: Record<string, string> = {}): Sample => ({
          metric,
          labels: { network, ...labels },
          value,
        })
        return [
          ...(index.head === null
            ? []
            : [sample('tollkeeper_api_index_age_seconds', ageOf(timeOf(index.head.blockTime)))]),
          ...(index.status === 'behind'
            ? [sample('tollkeeper_index_behind', 1, { reason: index.reason })]
            : []),
          ...[...unreadable].map(([reason, logs]) =>
            sample('tollkeeper_index_quarantined', logs, { reason }),
          ),
          ...queue.map(({ payee, oldestAt }) =>
            sample('tollkeeper_queue_oldest_seconds', ageOf(oldestAt), { payee }),
          ),
          // A wallet that no keeper has any more needs no gas money.
          ...keepers
            .filter(({ isHeld }) => isHeld)
            .flatMap(({ address: wallet, balance, pausedUntil }) => [
              sample('tollkeeper_wallet_paused', pausedUntil === null ? 0 : 1, { wallet }),
              ...(balance === null
                ? []
                : [sample('tollkeeper_wallet_balance_ether', Number(formatEther(balance)), { wallet })]),
            ]),
          sample('tollkeeper_failed_sweeps', failedSweeps),
          sample('tollkeeper_held_payments', overBudget, { reason: 'gas_budget' }),
        ]
      },
    ),
  ]
}

export function timeOf(blockTime: bigint): Date {
  return new Date(Number(blockTime) * 1000)
}
