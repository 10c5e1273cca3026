import { moveRecordHead } from '@tollkeeper/ledger/facts/record'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isTestnet } from '@tollkeeper/ledger/store/networks'
import type { ReservedSql } from 'postgres'
import type { Address } from 'viem'
import { createIndexTables, setIndexedHead } from '../../test/support/indexTables.ts'
import { seedPlatform, storeCandidates } from '../../test/support/seedPayments.ts'
import { seedTab, seedTabSettlement } from '../../test/support/seedTabs.ts'
import { makeCandidate, type Seller } from './makeCandidate.ts'

export type ViewsData = Awaited<ReturnType<typeof readViewsData>>

export type ViewsSize = {
  /** Number of sales. Two thirds are payments, and a third are requests on tabs. */
  payments: number
  providers: number
  chainId: number
  token: Address
  /** The end of the year. */
  now: Date
}

type Connection = ReservedSql<{ bigint: bigint }>
/** Number of payments that aren't settled yet. They are the newest ones, accepted within the last hour, as on a busy gateway. */
const openPayments = 1_000
const dayMs = 86_400_000
const payers = 5_000
/** The default of RETENTION_DAYS. */
const retentionDays = 30

/** Groups of tables with the function that fills them. All groups are filled at once, because none reads another group's tables. */
const parts = [
  { tables: ['payment', 'presentation'], fill: fillPayments },
  { tables: ['signed_authorization'], fill: fillSigned },
  { tables: ['indexer.authorization'], fill: fillAuthorizations },
  { tables: ['recorded_block', 'authorization_event'], fill: fillRecord },
  { tables: ['payment_result', 'revenue', 'payer_revenue', 'settlement_time'], fill: fillSums },
  { tables: ['tab_payment', 'tab_line', 'tab_sale'], fill: fillTabs },
  { tables: ['settled_batch', 'batch_recipient', 'keeper_day'], fill: fillBatches },
  { tables: ['usage'], fill: fillUsage },
]

/**
 * Fills the tables with what a gateway and its index hold after a year, including sums and retention. SQL writes completed sales, and
 * production's functions write open sales.
 *
 * @param sql a connection without time limits
 */
export async function fillViews(sql: Database, size: ViewsSize): Promise<void> {
  await createIndexTables(sql)
  await withSession(sql, (session) => fillRegistry(session, size))
  await Promise.all(
    parts.map(({ tables, fill }) =>
      withSession(sql, async (session) => {
        await session`begin`
        const restoreKeys = await dropKeys(session, tables)
        await fill(session, size)
        await restoreKeys()
        await session`commit`
        // Vacuum now, because autovacuum would otherwise run while the views are measured.
        await session.unsafe(`vacuum (analyze) ${tables.join(', ')}`)
      }),
    ),
  )
  await sql`
    update payer set accepted_total = r.gross
    from (select payer, sum(gross) as gross from payer_revenue where period = 'all' group by payer) r
    where address = r.payer`
  await acceptOpenSales(sql, size)
  await sql`vacuum (analyze)`
}

async function withSession(sql: Database, use: (session: Connection) => Promise<void>): Promise<void> {
  const session = await sql.reserve()
  try {
    // Disables the checks of foreign keys, which would take most of the time. The rows written here have correct keys.
    await session`set session_replication_role = replica`
    await session`set work_mem = '256MB'`
    await session`set maintenance_work_mem = '512MB'`
    await use(session)
    await session`reset all`
  } finally {
    session.release()
  }
}

/**
 * Drops keys and indexes, and returns a function that creates them again. This is many times faster than updating the indexes row by row. It
 * also gives the tables new files, because Postgres doesn't log writes to files that the same transaction created (wal_level = minimal).
 */
async function dropKeys(sql: Connection, tables: readonly string[]): Promise<() => Promise<void>> {
  const clusters = await sql<{ statement: string }[]>`
    select distinct on (indrelid) format('cluster %s using %I', indrelid::regclass, c.relname) as statement
    from pg_index i join pg_class c on c.oid = indexrelid
    where indrelid = any(${tables}::regclass[]) and indpred is null`
  for (const { statement } of clusters) await sql.unsafe(statement)
  // Keeps the keys to which foreign keys refer.
  const keys = await sql<{ drop: string; restore: string }[]>`
    select format('alter table %s drop constraint %I', conrelid::regclass, conname) as drop,
      format('alter table %s add constraint %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) as restore
    from pg_constraint c where conrelid = any(${tables}::regclass[]) and contype in ('p', 'u')
      and not exists (select from pg_constraint f where f.contype = 'f' and f.conindid = c.conindid)
    union all
    select format('drop index %s', indexrelid::regclass), pg_get_indexdef(indexrelid) from pg_index i
    where indrelid = any(${tables}::regclass[])
      and not exists (select from pg_constraint c where c.conindid = i.indexrelid)`
  for (const { drop } of keys) await sql.unsafe(drop)
  return async () => {
    for (const { restore } of keys) await sql.unsafe(restore)
  }
}

async function fillRegistry(sql: Connection, { providers, chainId, token }: ViewsSize): Promise<void> {
  const numbers = sql`generate_series(0, ${providers}::int - 1) n`
  await sql`
    insert into provider (id, name) select 'prov_' || md5('provider ' || n), 'Provider ' || n from ${numbers}`
  await sql`
    insert into wallet (id, provider_id, chain_id, address)
    select 'wal_' || md5('wallet ' || n), 'prov_' || md5('provider ' || n), ${chainId}::int, ${addressOf(sql, 'to', 'n')}
    from ${numbers}`
  await sql`
    insert into endpoint (id, provider_id, wallet_id, chain_id, testnet, method, url, host, path, shape, price)
    select 'ep_' || md5('endpoint ' || n || ' ' || e), 'prov_' || md5('provider ' || n), 'wal_' || md5('wallet ' || n),
      ${chainId}::int, ${isTestnet(sql, sql`${chainId}::int`)}, 'GET', 'https://api.example/' || e, 'api.example', '/' || e, '/' || e, 50000
    from ${numbers} cross join generate_series(0, 4) e`
  await sql`
    insert into payer (chain_id, token, address)
    select ${chainId}::int, ${token}, ${addressOf(sql, 'payer', 'n')} from generate_series(0, ${payers}::int - 1) n`
}

/**
 * Returns a subquery of the completed sales, numbered in the order of their acceptance. A buyer makes ten purchases in a row, mixed with
 * the purchases of ten other buyers. Every ten consecutive sales form a batch, which is mined a minute after its last sale. Three sales of
 * each batch go to provider 0. A third of the buyers make their ten purchases on a tab.
 */
function overSales(sql: Connection, { payments, providers, now }: ViewsSize) {
  const over = payments - openPayments
  const acceptedMs = (i: string) =>
    sql`${now.getTime() - dayMs / 12}::bigint - ((${over}::int - ${sql.unsafe(i)}) * ${(365 * dayMs) / payments}::float8)::bigint`
  return sql`(
    select i, run, run % 3 = 0 as is_tab, run % 5 as endpoint, run * 104729 % ${payers}::int as payer, i / 10 + 1 as sequence,
      case when i % 10 < 3 then 0 else 1 + run * 7919 % (${providers}::int - 1) end as provider,
      ${acceptedMs('i')} as accepted_ms, (${acceptedMs('(i / 10 * 10 + 9)')}) / 1000 + 60 as block_time
    from (select i, (i / 110 * 11 + i % 11)::bigint as run from generate_series(0, ${over}::int - 1) i) numbered
  )`
}

/**
 * Returns a subquery of the payments, which are the sales without a tab. Each payment's identifier begins with the payment's time, like
 * an identifier from `newId`. `offset 0` makes Postgres compute each row only once.
 */
function identified(sql: Connection, size: ViewsSize) {
  return sql`(
    select *, lpad(to_hex(accepted_ms), 12, '0') || left(md5('payment ' || i), 20) as digest,
      to_timestamp(accepted_ms / 1000.0) as accepted_at, accepted_ms / 1000 + 93600 as valid_before,
      ${addressOf(sql, 'payer', 'payer')} as authorizer, ${addressOf(sql, 'to', 'provider')} as payee
    from ${overSales(sql, size)} over where not is_tab offset 0
  )`
}

/** Returns a subquery of the tabs, each with its sales as one payment. A tab closes with its last sale, and settles in that sale's batch. */
function tabsOver(sql: Connection, size: ViewsSize) {
  return sql`(
    select *, lpad(to_hex(closed_ms), 12, '0') || left(md5('tab ' || run), 20) as digest,
      to_timestamp(closed_ms / 1000.0) as accepted_at, closed_ms / 1000 + 93600 as valid_before,
      ${addressOf(sql, 'payer', 'payer')} as authorizer, ${hashOf(sql, "'tab'", 'run')} as nonce
    from (
      select run, payer, count(*)::int as sales, min(accepted_ms) as opened_ms, max(accepted_ms) as closed_ms,
        max(sequence) as sequence, max(block_time) as block_time, max(i) as i
      from ${overSales(sql, size)} over where is_tab group by run, payer
    ) tab offset 0
  )`
}

/** Returns a subquery of both authorizations of each payment, in the order in which they are accepted and logged. */
function halvesOf(sql: Connection, size: ViewsSize) {
  return sql`(
    select *, ${hashOf(sql, 'half', 'digest')} as nonce, case half when 0 then 47500 else 2500 end as value,
      case half when 0 then payee else ${seedPlatform} end as recipient
    from (select *, unnest(array[0, 1]) as half from ${identified(sql, size)} one) each offset 0
  )`
}

const addressOf = (sql: Connection, kind: string, column: string) =>
  sql`'0x' || left(encode(sha256((${`${kind} `}::text || ${sql.unsafe(column)})::bytea), 'hex'), 40)`
const hashOf = (sql: Connection, kind: string, column: string) =>
  sql`'0x' || encode(sha256((${sql.unsafe(kind)} || ' ' || ${sql.unsafe(column)})::bytea), 'hex')`

async function fillPayments(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into payment (id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee, fee_recipient, price,
      provider_amount, fee_amount, valid_before, tier, effective_rate, resource, challenged_at, accepted_at)
    select 'pay_' || digest, 'gateway', 'req_' || digest, 'prov_' || md5('provider ' || provider),
      'ep_' || md5('endpoint ' || provider || ' ' || endpoint), ${size.chainId}::int, ${size.token}, authorizer, payee,
      ${seedPlatform}, 50000, 47500, 2500, valid_before, 'micropayment', '0.05', 'https://api.example/0', accepted_at,
      accepted_at
    from ${identified(sql, size)} one`
  await sql`
    insert into payment (id, source, chain_id, token, payer, payee, fee_recipient, splitter, price, provider_amount, fee_amount,
      valid_before, tier, effective_rate, resource, challenged_at, accepted_at)
    select 'pay_' || digest, 'tab', ${size.chainId}::int, ${size.token}, authorizer, ${seedTabSettlement}, ${seedPlatform},
      ${seedTabSettlement}, sales * 50000, sales * 47500, sales * 2500, valid_before, 'tab', '0.05', 'tab_' || md5('tab ' || run),
      to_timestamp(opened_ms / 1000.0), accepted_at
    from ${tabsOver(sql, size)} tab`
  const kept = new Date(size.now.getTime() - retentionDays * dayMs)
  await sql`
    insert into presentation (payment_id, request_hash, idempotency_key, signature, fee_signature)
    select 'pay_' || digest, sha256(digest::bytea), digest, decode(repeat('11', 65), 'hex'), decode(repeat('11', 65), 'hex')
    from ${identified(sql, size)} one where to_timestamp(block_time + 20) >= ${kept}`
}

async function fillRecord(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into recorded_block (id, chain_id, number, hash, time, confirmed_at, looked, is_final) overriding system value
    select sequence, ${size.chainId}::int, 1000 + sequence, ${hashOf(sql, "'block'", 'sequence')}, block_time,
      to_timestamp(block_time + 20), 2, true
    from (select distinct sequence, block_time from ${overSales(sql, size)} one order by 1) batch`
  await sql`select setval(pg_get_serial_sequence('recorded_block', 'id'), (select max(id) from recorded_block))`
  await sql`
    insert into authorization_event (payment_id, half, state, source, tx_hash, log_index, block_id)
    select 'pay_' || digest, half, 'settled', 'receipt', ${hashOf(sql, "'tx'", 'sequence')}, 2 * (i % 10) + half, sequence
    from ${halvesOf(sql, size)} half`
  await sql`
    insert into authorization_event (payment_id, half, state, source, tx_hash, log_index, block_id)
    select 'pay_' || digest, 0, 'settled', 'receipt', ${hashOf(sql, "'tx'", 'sequence')}, 2 * (i % 10), sequence
    from ${tabsOver(sql, size)} tab`
}

async function fillSigned(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce)
    select 'pay_' || digest, half, ${size.chainId}::int, ${size.token}, authorizer, recipient, value, 0, valid_before, nonce
    from ${halvesOf(sql, size)} half`
  await sql`
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce)
    select 'pay_' || digest, 0, ${size.chainId}::int, ${size.token}, authorizer, ${seedTabSettlement}, sales * 50000, 0, valid_before,
      nonce
    from ${tabsOver(sql, size)} tab`
}

/** Fills the sales on tabs. Each sale is one request, on the line of provider 0 or on the line of the tab's other provider. */
async function fillTabs(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into tab_payment (payment_id, payer, tab_id, sequence, reward_share, requests, close_reason, opened_at)
    select 'pay_' || digest, authorizer, 'tab_' || md5('tab ' || run), sales, 500, sales, 'idle', to_timestamp(opened_ms / 1000.0)
    from ${tabsOver(sql, size)} tab`
  const sold = sql`(
    select tab.digest, tab.authorizer, tab.accepted_at as taken_at, one.*, least(one.provider, 1) as position
    from ${tabsOver(sql, size)} tab join ${overSales(sql, size)} one on one.run = tab.run
  )`
  await sql`
    insert into tab_line (payment_id, position, payee, provider_share, platform_share, amount, charged)
    select 'pay_' || digest, position, ${addressOf(sql, 'to', 'provider')}, 19, 1, count(*) * 50000, count(*) * 50000
    from ${sold} sold group by digest, position, provider`
  await sql`
    insert into tab_sale (payment_id, number, position, provider_id, endpoint_id, chain_id, payer, payee, requests, provider_amount,
      fee_amount, accepted_at, taken_at, arrived, lost_fee_share)
    select 'pay_' || digest, i % 110 / 11, position, 'prov_' || md5('provider ' || provider),
      'ep_' || md5('endpoint ' || provider || ' ' || endpoint), ${size.chainId}::int, authorizer, ${addressOf(sql, 'to', 'provider')}, 1,
      47500, 2500, to_timestamp(accepted_ms / 1000.0), taken_at, 50000, 0
    from ${sold} sold order by i`
}

async function fillAuthorizations(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value, tx_hash, log_index,
      block_number, block_hash, block_time, batch_log_index)
    select ${size.chainId}::int, ${size.token}, authorizer, nonce, 'used', recipient, value, ${hashOf(sql, "'tx'", 'sequence')},
      2 * (i % 10) + half, 1000 + sequence, ${hashOf(sql, "'block'", 'sequence')}, block_time, 99
    from ${halvesOf(sql, size)} half`
}

/** Fills payments' results and their sums. Groups the rows by numbers first, because grouping them by six text columns takes ten times as long. */
async function fillSums(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into payment_result (payment_id, kind, ended_at, final_at, arrived, settlement_seconds, provider_id, payer, chain_id,
      accepted_at, valid_before)
    select 'pay_' || digest, 'settled', to_timestamp(block_time + 20), to_timestamp(block_time + 20), 3,
      block_time - accepted_ms / 1000.0, 'prov_' || md5('provider ' || provider), authorizer, ${size.chainId}::int, accepted_at,
      valid_before
    from ${identified(sql, size)} one`
  await sql`
    insert into payment_result (payment_id, kind, ended_at, final_at, arrived, settlement_seconds, payer, chain_id, accepted_at, valid_before)
    select 'pay_' || digest, 'settled', to_timestamp(block_time + 20), to_timestamp(block_time + 20), 3,
      block_time - closed_ms / 1000.0, authorizer, ${size.chainId}::int, accepted_at, valid_before
    from ${tabsOver(sql, size)} tab`
  await sql`
    with hourly as materialized (
      select provider, endpoint, accepted_ms / 3600000 as hour, count(*) as payments, count(*) filter (where is_tab) as tabs
      from ${overSales(sql, size)} one group by 1, 2, 3
    ), daily as materialized (
      select provider, endpoint, hour / 24 as day, sum(payments) as payments, sum(tabs) as tabs from hourly group by 1, 2, 3
    )
    insert into revenue (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments, voided_payments,
      settled_payments, failed_payments, tab_payments, gross, fee, settled_net, settled_fee, failed_net)
    select 'prov_' || md5('provider ' || provider), period, starts_at,
      'ep_' || md5('endpoint ' || provider || ' ' || endpoint), ${size.chainId}::int, ${addressOf(sql, 'to', 'provider')},
      payments, 0, payments, 0, tabs, payments * 50000, payments * 2500, payments * 47500, payments * 2500, 0
    from (
      select provider, endpoint, 'hour' as period, to_timestamp(hour * 3600) as starts_at, payments, tabs from hourly
      union all
      select provider, endpoint, 'day', to_timestamp(day * 86400), payments, tabs from daily
      union all
      select provider, endpoint, 'month', date_trunc('month', to_timestamp(day * 86400), 'UTC'), sum(payments), sum(tabs)
      from daily group by 1, 2, 3, 4
    ) counted order by starts_at`
  await sql`
    with daily as materialized (
      select provider, endpoint, payer, accepted_ms / 86400000 as day, count(*) as payments, count(*) filter (where is_tab) as tabs,
        min(accepted_ms) as first_ms, max(accepted_ms) as last_ms
      from ${overSales(sql, size)} one group by 1, 2, 3, 4
    )
    insert into payer_revenue (provider_id, period, starts_at, endpoint_id, chain_id, payer, payments, settled_payments, tab_payments,
      gross, fee, settled_net, settled_fee, first_accepted_at, last_accepted_at)
    select 'prov_' || md5('provider ' || provider), period, starts_at, 'ep_' || md5('endpoint ' || provider || ' ' || endpoint),
      ${size.chainId}::int, ${addressOf(sql, 'payer', 'payer')}, payments, payments, tabs, payments * 50000, payments * 2500,
      payments * 47500, payments * 2500, to_timestamp(first_ms / 1000.0), to_timestamp(last_ms / 1000.0)
    from (
      select provider, endpoint, payer, 'day' as period, to_timestamp(day * 86400) as starts_at, payments, tabs, first_ms, last_ms
      from daily
      union all
      select provider, endpoint, payer, 'month', date_trunc('month', to_timestamp(day * 86400), 'UTC'), sum(payments), sum(tabs),
        min(first_ms), max(last_ms)
      from daily group by 1, 2, 3, 4, 5
      union all
      select provider, null::bigint, payer, 'all', to_timestamp(0), sum(payments), sum(tabs), min(first_ms), max(last_ms)
      from daily group by 1, 2, 3
    ) counted order by starts_at`
  await sql`
    insert into settlement_time (chain_id, day, bucket, payments)
    select ${size.chainId}::int, date '1970-01-01' + day, settlement_bucket(seconds), sum(payments)
    from (
      select (accepted_ms / 86400000)::int as day, (block_time - accepted_ms / 1000.0)::int as seconds, count(*) as payments
      from ${overSales(sql, size)} one group by 1, 2
    ) counted group by 1, 2, 3`
}

/** Fills four calls for each payment: one without payment, one with a valid payment, and two that were refused. */
async function fillUsage(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into usage (provider_id, period, starts_at, endpoint_id, outcome, calls)
    select 'prov_' || md5('provider ' || provider), period, date_trunc(period, to_timestamp(hour * 3600), 'UTC'),
      'ep_' || md5('endpoint ' || provider || ' ' || endpoint), outcome, sum(calls)
    from (
      select provider, endpoint, accepted_ms / 3600000 as hour, count(*) as calls from ${overSales(sql, size)} one group by 1, 2, 3
    ) counted
    cross join unnest(array['challenged', 'paid', 'insufficient_balance', 'payment_replayed']) as outcome
    cross join unnest(array['hour', 'day', 'month']) as period
    group by 1, 2, 3, 4, 5 order by 3`
}

/** Fills batches while their table's trigger is off, and then computes the sums that the trigger would keep. */
async function fillBatches(sql: Connection, size: ViewsSize): Promise<void> {
  await sql`
    insert into batch_recipient (batch_id, recipient, chain_id, block_time, position, payment_count, total)
    select sequence, ${addressOf(sql, 'to', 'provider')}, ${size.chainId}::int, block_time, (1000 + sequence::bigint << 20) + 99,
      payments, payments * 47500
    from (
      select sequence, block_time, provider, count(*) as payments
      from ${overSales(sql, size)} one group by 1, 2, 3 order by 1
    ) counted`
  await sql`
    insert into settled_batch (id, chain_id, block_id, block_time, position, log_index, tx_hash, sequence, keeper, trigger,
      payment_count, provider_total, fee_total, gas_used, gas_cost, is_first) overriding system value
    select batch_id, chain_id, batch_id, block_time, position, 99, ${hashOf(sql, "'tx'", 'batch_id')}, batch_id,
      '0x' || repeat('ee', 20), 1, sum(payment_count), sum(total), sum(payment_count) * 2500, 90000 * sum(payment_count),
      90000 * sum(payment_count) * 1000000 + 2000000000, true
    from batch_recipient group by batch_id, chain_id, block_time, position order by batch_id`
  await sql`select setval(pg_get_serial_sequence('settled_batch', 'id'), (select max(id) from settled_batch))`
  await sql`
    insert into keeper_day (chain_id, day, keeper, batches, payments, total, gas_used, gas_cost)
    select chain_id, (to_timestamp(block_time) at time zone 'UTC')::date, keeper, count(*), sum(payment_count),
      sum(provider_total + fee_total), sum(gas_used), sum(gas_cost)
    from settled_batch group by 1, 2, 3`
}

/** Stores the sales that wait for the keeper, by production's functions. A third of the sales are on tabs, three sales on each. */
async function acceptOpenSales(sql: Database, { providers, chainId, token, now }: ViewsSize) {
  const sellers = await sql<Seller[]>`
    select e.provider_id as "providerId", e.id as "endpointId", w.address as payee
    from generate_series(0, ${openPayments - 1}::int) i
    join endpoint e on e.id = 'ep_' || md5('endpoint ' ||
      case when i % 10 < 3 then 0 else 1 + i * 7919::bigint % (${providers}::int - 1) end || ' ' || i % 5)
    join wallet w on w.id = e.wallet_id
    order by i`
  const addresses = await sql<{ address: Address }[]>`select address from payer limit 100`
  const payerOf = (i: number) => addresses[i % addresses.length]?.address as Address
  const acceptedAt = (i: number) => new Date(now.getTime() - (openPayments - i) * 3_000)
  const sales = sellers.map((seller, i) => ({ ...seller, i }))
  const [single, onTabs] = [sales.filter(({ i }) => i % 3 > 0), sales.filter(({ i }) => i % 3 === 0)]
  const candidates = single.map(({ i, ...seller }) =>
    makeCandidate(acceptedAt(i).getTime(), seller, { payer: payerOf(i), chainId, token }),
  )
  for (let i = 0; i < candidates.length; i += 20) await storeCandidates(sql, candidates.slice(i, i + 20))
  for (let at = 0; at < onTabs.length; at += 3) {
    const sold = onTabs.slice(at, at + 3)
    const last = sold.at(-1)?.i ?? 0
    await seedTab(sql, {
      payer: payerOf(last),
      closedAt: acceptedAt(last),
      token,
      sales: sold.map(({ i, providerId, endpointId, payee }) => ({
        provider: { providerId, wallet: payee, endpointIds: [endpointId] },
        requests: 1,
        amount: 50_000n,
        acceptedAt: acceptedAt(i),
      })),
    })
  }
}

/** Sets the heads of the index and of the record to the chain's head, and returns the providers that the bench requests. */
export async function readViewsData(sql: Database, chainId: number) {
  const [{ batches }] = await sql<[{ batches: number }]>`
    select max(sequence)::int as batches from settled_batch`
  const head = { blockNumber: 2_000 + batches, blockTime: Math.floor(Date.now() / 1000) }
  await setIndexedHead(sql, { chainId, ...head })
  const [blockNumber, blockTime] = [BigInt(head.blockNumber), BigInt(head.blockTime)]
  await moveRecordHead(sql, chainId, { blockNumber, readNumber: blockNumber, blockTime })
  const [great, ...others] = await sql<{ providerId: string; wallet: Address }[]>`
    select provider_id as "providerId", address as wallet from wallet
    where id in (select 'wal_' || md5('wallet ' || n) from generate_series(0, 200) n)
    order by provider_id = ${'prov_'} || md5('provider 0') desc, id`
  if (!great) throw new Error('there is no provider')
  /** `great` is the largest provider, with 30% of all payments and a part of each batch. `others` are some of the other providers. */
  return { great, others, batches }
}
