import type { Database } from '@tollkeeper/ledger/store/database'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import type { Address } from 'viem'

export const networkIntervals = ['day', 'week'] as const
export type NetworkInterval = (typeof networkIntervals)[number]

/** Sums over everything that settled on a network, by any keeper. */
export type SettledSums = {
  batches: number
  payments: number
  /** Everything that moved, in USDC base units, fees included. */
  total: bigint
  gasUsed: bigint
  /** Wei, L1 fees included. */
  gasCost: bigint
}

/** Seconds from acceptance to the block. Half of the payments took at most `median`, and 95 of 100 at most `p95`. */
export type SettlementTimes = { median: number; p95: number }

export type NetworkActivity = {
  /** `keepers`: the number of keepers that settled something. */
  total: SettledSums & { keepers: number }
  /** Oldest interval first, without intervals in which nothing settled. */
  intervals: (SettledSums & { startsAt: Date })[]
  /** Keepers with the most payments first. `lastBlockTime` in Unix seconds. */
  keepers: (SettledSums & { address: Address; lastBlockTime: bigint })[]
}

/**
 * Reads everything that settled on a network since the start of a UTC day, as the chain shows it.
 *
 * This is one statement and therefore one snapshot. It reads a row per keeper and day, regardless of the number of payments.
 */
export async function readNetworkActivity(
  sql: Database,
  {
    chainId,
    interval,
    from,
    keepers,
  }: { chainId: number; interval: NetworkInterval; from: Date; keepers: number },
): Promise<NetworkActivity> {
  const sums = sql`sum(batches)::int as batches, sum(payments)::int as payments, sum(total) as total,
    sum(gas_used) as "gasUsed", sum(gas_cost) as "gasCost"`
  type Row = SettledSums & {
    startsAt: Date | null
    address: Address | null
    lastBlockTime: bigint
    keepers: number
  }
  const rows = await sql<Row[]>`
    with summed as (
      select date_trunc(${interval}, day::timestamp) at time zone 'UTC' as starts_at, keeper as address,
        grouping(keeper) as of_interval, ${sums}, count(distinct keeper)::int as keepers
      from keeper_day
      -- If a reorg removed all batches of a day, the day keeps a row of zeros.
      where chain_id = ${chainId} and day >= ${utcDay(from)} and batches > 0
      group by grouping sets ((), (1), (keeper))
    ), ranked as (
      select *, row_number() over (partition by of_interval order by payments desc, address) as rank from summed
    )
    select starts_at as "startsAt", address, batches, payments, total, "gasUsed", "gasCost", keepers, (
        select block_time from settled_batch
        where chain_id = ${chainId} and keeper = address order by block_time desc, position desc limit 1
      ) as "lastBlockTime"
    from ranked where of_interval = 1 or rank <= ${keepers}
    order by of_interval, rank, starts_at`
  const activity: NetworkActivity = { total: nothing, intervals: [], keepers: [] }
  for (const { startsAt, address, lastBlockTime, keepers: count, ...settled } of rows) {
    if (address !== null) activity.keepers.push({ ...settled, address, lastBlockTime })
    else if (startsAt !== null) activity.intervals.push({ ...settled, startsAt })
    else if (count > 0) activity.total = { ...settled, keepers: count }
  }
  activity.intervals.sort((a, b) => a.startsAt.getTime() - b.startsAt.getTime())
  return activity
}

const nothing = { batches: 0, payments: 0, total: 0n, gasUsed: 0n, gasCost: 0n, keepers: 0 }

/**
 * Reads how long this gateway's payments took to settle. A payment counts in the interval in which it was accepted.
 *
 * @param least minimum number of payments: intervals with fewer are left out, so that no figure is about a single buyer
 */
export async function readSettlementTimes(
  sql: Database,
  {
    chainId,
    interval,
    from,
    least,
  }: { chainId: number; interval: NetworkInterval; from: Date; least: number },
): Promise<(SettlementTimes & { startsAt: Date })[]> {
  return sql<(SettlementTimes & { startsAt: Date })[]>`
    with bucketed as (
      select date_trunc(${interval}, day::timestamp) at time zone 'UTC' as starts_at, bucket, sum(payments) as payments
      from settlement_time
      where chain_id = ${chainId} and day >= ${utcDay(from)}
      group by 1, 2
    ), counted as (
      select starts_at, bucket, sum(payments) over (partition by starts_at order by bucket) as until_here,
        sum(payments) over (partition by starts_at) as all_payments
      from bucketed
    )
    select starts_at as "startsAt",
      round(exp((min(bucket) filter (where until_here * 2 >= all_payments)) / 20.0))::int as median,
      round(exp((min(bucket) filter (where until_here * 20 >= all_payments * 19)) / 20.0))::int as p95
    from counted where all_payments >= ${least}
    group by starts_at
    order by starts_at`
}
