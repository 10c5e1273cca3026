import type { Address } from 'viem'
import { acceptPayments } from '#ledger/acceptance/acceptPayments'
import type { Lease } from '#ledger/batches/leases'
import { recordBatches } from '#ledger/facts/record'
import { createRetention } from '#ledger/outcomes/retention'
import type { Database } from '#ledger/store/database'
import { setIndexedHead } from '../../test/support/indexTables.ts'
import { createLives } from '../support/lives.ts'
import { makeCandidate, randomHex, type Seller } from './makeCandidate.ts'

export type GrowthOptions = {
  chainId: number
  token: Address
  paymentsPerDay: number
  days: number
  /** RETENTION_DAYS. */
  retentionDays: number
}

/** A table of a size: rows and bytes, those of its indexes apart, and how much of it is dead. */
export type TableSize = {
  name: string
  rows: number
  heapMb: number
  indexMb: number
  deadPercent: number
  vacuums: number
}

const batchSize = 100
const acceptedAtOnce = 20
const dayMs = 86_400_000
const pick = <T>(from: readonly T[]) => from[Math.floor(Math.random() * from.length)] as T

/**
 * Lets days pass on a database that fillViews filled, by the functions that production runs: acceptance, claims, the record, the
 * ends and the providers' sums, retention. Only the index is written by SQL, as Ponder would. After each hour
 * it vacuums what autovacuum's own rule names, since autovacuum sees only the seconds that pass.
 */
export async function growWeek(sql: Database, options: GrowthOptions): Promise<void> {
  const { chainId, token, paymentsPerDay, days } = options
  const sellers = await sql<Seller[]>`
    select e.provider_id as "providerId", e.id as "endpointId", w.address as payee
    from endpoint e join wallet w on w.id = e.wallet_id
    where e.provider_id in (select 'prov_' || md5('provider ' || n) from generate_series(0, 500) n)
    order by e.provider_id = 'prov_' || md5('provider 0') desc, e.id`
  const payers = (await sql<{ address: Address }[]>`select address from payer limit 1000`).map(
    (row) => row.address,
  )
  const [last] = await sql<[{ sequence: number }]>`select max(sequence)::int as sequence from settled_batch`
  const lives = createLives(sql, { chainId, token })
  const wallet: Address = `0x${'ee'.repeat(20)}`
  const began = Date.now()
  const retain = (now: number) => createRetention(sql, { days: options.retentionDays, now: () => now })
  let { sequence } = last
  let retentionStep = retain(began)
  for (let hour = 0; hour < days * 24; hour++) {
    const now = began + hour * (dayMs / 24)
    const count = Math.round((paymentsPerDay * (hour + 1)) / 24) - Math.round((paymentsPerDay * hour) / 24)
    // As in a year's payments: three of ten are the greatest provider's, who comes first with its five endpoints.
    const candidates = Array.from({ length: count }, (_, i) =>
      makeCandidate(now + i, pick(Math.random() < 0.3 ? sellers.slice(0, 5) : sellers.slice(5)), {
        ...{ payer: pick(payers), chainId, token },
      }),
    )
    for (let i = 0; i < count; i += acceptedAtOnce)
      await acceptPayments(sql, candidates.slice(i, i + acceptedAtOnce))
    for (let i = 0; i < count; i += batchSize) {
      const ids = candidates.slice(i, i + batchSize).map(({ id }) => id)
      sequence++
      await settle(sql, lives, await lives.lease(wallet), ids, sequence, now)
    }
    if (hour % 24 === 0) retentionStep = retain(now)
    while ((await retentionStep()) === 'busy');
    await vacuumAsDue(sql)
  }
}

async function settle(
  sql: Database,
  lives: ReturnType<typeof createLives>,
  lease: Lease,
  paymentIds: readonly string[],
  sequence: number,
  now: number,
): Promise<void> {
  const { chainId, address: wallet } = lease
  const [blockNumber, blockTime] = [1_000 + sequence, Math.floor(now / 1000)]
  const batch = await lives.claim(lease, paymentIds, new Date(now))
  const block = { blockNumber: BigInt(blockNumber), blockHash: randomHex(32), blockTime: BigInt(blockTime) }
  const mined = { ...(await lives.send(lease, batch)), block }
  const [txHash, events] = [mined.hash, await lives.readEvents(mined)]
  await sql`
    insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value, tx_hash, log_index,
      block_number, block_hash, block_time, batch_log_index)
    select chain_id, token, authorizer, nonce, 'used', recipient, value, ${txHash},
      (2 * row_number() over (order by payment_id, half))::int, ${blockNumber}, ${block.blockHash}, ${blockTime}, 9999
    from signed_authorization where payment_id in ${sql([...paymentIds])}`
  await setIndexedHead(sql, { chainId, blockNumber: blockNumber + 1_000, blockTime: blockTime + 20 })
  await lives.record(mined, events)
  const byPayee = Map.groupBy(
    events.filter(({ logIndex }) => logIndex % 4 === 2),
    ({ recipient }) => recipient as Address,
  )
  await recordBatches(sql, { chainId, token: batch.token }, [
    {
      ...{
        txHash,
        logIndex: 9_999,
        sequence,
        keeper: wallet,
        triggerCode: 1,
        paymentCount: paymentIds.length,
      },
      ...{ providerTotal: 47_500n * BigInt(paymentIds.length), feeTotal: 2_500n * BigInt(paymentIds.length) },
      ...{ gasUsed: 9_000_000n, gasCost: 9_002_000_000_000n, ...block },
      recipients: [...byPayee].map(([recipient, { length }]) => ({
        ...{ recipient, paymentCount: length, total: 47_500n * BigInt(length) },
      })),
    },
  ])
  await lives.confirm(mined, new Date(now + 20_000))
  await lives.end(mined, new Date(now + 20_000))
}

/** What autovacuum would find due, by each table's own settings or the server's. */
async function vacuumAsDue(sql: Database): Promise<void> {
  const due = await sql<{ name: string }[]>`
    select s.relid::regclass::text as name
    from pg_stat_user_tables s join pg_class c on c.oid = s.relid
    cross join lateral (
      select coalesce((select option_value::float8 from pg_options_to_table(c.reloptions)
        where option_name = 'autovacuum_vacuum_scale_factor'), current_setting('autovacuum_vacuum_scale_factor')::float8) as share
    ) own
    where n_dead_tup > least(50 + own.share * c.reltuples, 100000000)`
  for (const { name } of due) await sql.unsafe(`vacuum (analyze) ${name}`)
}

/** The largest first. */
export async function readSizes(sql: Database): Promise<TableSize[]> {
  return sql<TableSize[]>`
    select s.schemaname || '.' || s.relname as name, n_live_tup::float8 as rows,
      pg_table_size(relid)::float8 / 1e6 as "heapMb", pg_indexes_size(relid)::float8 / 1e6 as "indexMb",
      (100.0 * n_dead_tup / greatest(1, n_live_tup + n_dead_tup))::float8 as "deadPercent",
      (vacuum_count + autovacuum_count)::float8 as vacuums
    from pg_stat_user_tables s
    order by pg_total_relation_size(relid) desc`
}
