import type { ReservedSql } from 'postgres'
import type { Address } from 'viem'
import { type Database, schema } from '#ledger/database'
import { createIndexTables, indexIndexTables, setIndexedHead } from '../../test/support/indexTables.ts'

export type ViewsData = {
  /** The provider with the most, and its wallet, which is in 30 % of all payments, each in a batch of its own. */
  greatProviderId: string
  greatWallet: Address
  /** Some of the others. */
  providerIds: string[]
  wallets: Address[]
  batches: number
}

export type ViewsSize = {
  payments: number
  providers: number
  chainId: number
  token: Address
}

type Connection = ReservedSql<{ bigint: bigint }>
/** Both sessions count from one moment, since identifiers are made of times. */
type Fill = ViewsSize & { now: Date }

// The newest payments, accepted within the last hour, are not settled yet: what a busy gateway has at any moment.
const openPayments = 1_000
const days = 365
/** RETENTION_DAYS, as it is unless set. */
const retentionDays = 30

/**
 * Fills tables as a gateway and its index would look after a year, sums included, by SQL.
 *
 * @param sql without a limit to how long a statement may take.
 */
export async function fillViews(sql: Database, views: ViewsSize): Promise<void> {
  const size = { ...views, now: new Date() }
  await createIndexTables(sql, { withIndexes: false })
  const tables = [
    [`${schema}.payment`, `${schema}.presentation`],
    [`${schema}.signed_authorization`, 'indexer.authorization', 'indexer.batch', 'indexer.batch_recipient'],
  ] as const
  const [payments, others] = await Promise.all([openSession(sql), openSession(sql)])
  try {
    // Both at once, on two cores: neither reads what the other writes.
    const [restorePayments, restoreOthers] = [
      await dropKeys(payments, tables[0]),
      await dropKeys(others, tables[1]),
    ]
    await fillRegistry(payments, size)
    await Promise.all([
      fillPayments(payments, size).then(restorePayments),
      fillIndex(others, size)
        .then(restoreOthers)
        .then(() => indexIndexTables(others)),
    ])
    // Not analyzed by itself while this server is busy with a further database.
    await payments`vacuum (analyze)`
  } finally {
    payments.release()
    others.release()
  }
}

async function openSession(sql: Database): Promise<Connection> {
  const connection = await sql.reserve()
  // Foreign keys are right by construction here; looking each of them up takes most of the time.
  await connection`set session_replication_role = replica`
  await connection`set synchronous_commit = off`
  await connection`set work_mem = '256MB'`
  await connection`set maintenance_work_mem = '1GB'`
  return connection
}

async function fillRegistry(sql: Connection, { providers, chainId, token }: ViewsSize): Promise<void> {
  await sql`
    insert into provider (id, name)
    select 'prov_' || md5('provider ' || n), 'Provider ' || n from generate_series(0, ${providers}::int - 1) n`
  await sql`
    insert into wallet (id, provider_id, chain_id, address)
    select 'wal_' || md5('wallet ' || n), 'prov_' || md5('provider ' || n), ${chainId}::int, '0x' || left(md5('to ' || n) || md5(n::text), 40)
    from generate_series(0, ${providers}::int - 1) n`
  await sql`
    insert into endpoint (id, provider_id, wallet_id, chain_id, method, url, path, shape, price)
    select 'ep_' || md5('endpoint ' || n || ' ' || e), 'prov_' || md5('provider ' || n), 'wal_' || md5('wallet ' || n),
      ${chainId}::int, 'GET', 'https://api.example/' || e, '/' || e, '/' || e, 50000
    from generate_series(0, ${providers}::int - 1) n cross join generate_series(0, 4) e`
  await sql`
    insert into payer (chain_id, token, address)
    select ${chainId}::int, ${token}, '0x' || left(md5('payer ' || n) || md5(n::text), 40) from generate_series(0, 4999) n`
}

/**
 * The payments in the order of their acceptance: a subquery with their number `i` from the oldest, and with identifiers
 * that begin with their time, as `newId` makes them. Three of ten go to
 * provider 0, each of them into a batch of its own.
 */
function made(sql: Connection, { payments, providers, now }: Fill) {
  return sql`(
    select *, lpad(to_hex((extract(epoch from accepted_at) * 1000)::bigint), 12, '0') || left(md5('payment ' || i), 20) as digest
    from (select i,
      case when i % 10 < 3 then 0 else 1 + (i::bigint * 7919) % (${providers}::int - 1) end as provider,
      (i::bigint * 104729) % 5000 as payer,
      (i / 10) * 3 + case when i % 10 < 3 then i % 10 else least((i % 10 - 3) / 2, 2) end + 1 as sequence,
      date_trunc('milliseconds', ${now}::timestamptz - case when i >= ${payments}::int - ${openPayments}::int
        then (${payments}::int - i) * interval '3 seconds'
        else interval '1 hour' + (${payments}::int - i) * (${days}::int * interval '1 day' / ${payments}::int) end) as accepted_at,
      i >= ${payments}::int - ${openPayments}::int as is_open
    from generate_series(0, ${payments}::int - 1) i) numbered
  )`
}

async function fillPayments(sql: Connection, size: Fill): Promise<void> {
  const { chainId, token } = size
  await sql`
    insert into payment (id, request_id, provider_id, endpoint_id, chain_id, token, payer, payee, fee_recipient, price,
      provider_amount, fee_amount, valid_before, tier, effective_rate, resource, challenged_at, accepted_at, concluded_at,
      summarised)
    select 'pay_' || digest, 'req_' || digest, 'prov_' || md5('provider ' || provider),
      'ep_' || md5('endpoint ' || provider || ' ' || i % 5), ${chainId}::int, ${token},
      '0x' || left(md5('payer ' || payer) || md5(payer::text), 40), '0x' || left(md5('to ' || provider) || md5(provider::text), 40),
      '0x' || repeat('fe', 20), 50000, 47500, 2500, extract(epoch from accepted_at)::bigint + 93600, 'micropayment',
      '0.05', 'https://api.example/0', accepted_at, accepted_at,
      case when is_open then null else accepted_at + interval '1 hour' end, case when is_open then null else 3 end
    from ${made(sql, size)} made`
  await sql`
    insert into presentation (payment_id, request_hash, idempotency_key, signature, fee_signature)
    select 'pay_' || digest, sha256(digest::bytea), digest,
      decode(repeat('11', 65), 'hex'), decode(repeat('11', 65), 'hex')
    from ${made(sql, size)} made where accepted_at > ${size.now}::timestamptz - ${retentionDays}::int * interval '1 day'`
  // Counted by numbers first: grouping by six texts takes ten times as long.
  await sql`
    insert into revenue (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments, voided_payments,
      settled_payments, failed_payments, gross, fee, settled_net, settled_fee, failed_net)
    select 'prov_' || md5('provider ' || provider), period, starts_at,
      'ep_' || md5('endpoint ' || provider || ' ' || endpoint), ${chainId}::int,
      '0x' || left(md5('to ' || provider) || md5(provider::text), 40), payments, 0, payments, 0, payments * 50000,
      payments * 2500, payments * 47500, payments * 2500, 0
    from (
      select provider, i % 5 as endpoint, period, date_trunc(period, accepted_at, 'UTC') as starts_at,
        count(*) as payments
      from ${made(sql, size)} made cross join (values ('hour'), ('day'), ('month')) as periods (period)
      where not is_open group by 1, 2, 3, 4
      order by 4
    ) counted`
  await sql`
    insert into payer_revenue (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net,
      last_accepted_at)
    select 'prov_' || md5('provider ' || provider), period, starts_at, ${chainId}::int,
      '0x' || left(md5('payer ' || payer) || md5(payer::text), 40), payments, payments * 50000, payments * 47500,
      last_accepted_at
    from (
      select provider, payer, period,
        case period when 'all' then 'epoch' else date_trunc(period, accepted_at, 'UTC') end as starts_at,
        count(*) as payments, max(accepted_at) as last_accepted_at
      from ${made(sql, size)} made cross join (values ('all'), ('month'), ('day')) as periods (period)
      where not is_open group by 1, 2, 3, 4
      order by 4
    ) counted`
}

async function fillIndex(sql: Connection, size: Fill): Promise<void> {
  const { chainId, token } = size
  // Both halves side by side, as they are accepted and logged.
  const halves = sql`
    select m.*, half, '0x' || left(md5('payer ' || payer) || md5(payer::text), 40) as authorizer,
      case half when 0 then '0x' || left(md5('to ' || provider) || md5(provider::text), 40) else '0x' || repeat('fe', 20) end
        as recipient,
      case half when 0 then 47500 else 2500 end as value,
      '0x' || md5(half || digest) || md5(digest || half) as nonce
    from ${made(sql, size)} m cross join lateral (values (0), (1)) h (half)`
  await sql`
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce)
    select 'pay_' || digest, half, ${chainId}::int, ${token}, authorizer, recipient, value, 0,
      extract(epoch from accepted_at)::bigint + 93600, nonce
    from (${halves}) h`
  await sql`
    insert into indexer.authorization (chain_id, token, authorizer, nonce, state, recipient, value, tx_hash, log_index,
      block_number, block_hash, block_time, batch_log_index)
    select ${chainId}::int, ${token}, authorizer, nonce, 'used', recipient, value,
      '0x' || md5('tx ' || sequence) || md5(sequence::text), 2 * i % 10 + half, 1000 + sequence,
      '0x' || md5('block ' || sequence) || md5(sequence::text),
      extract(epoch from accepted_at)::bigint + 60, 99
    from (${halves}) h where not is_open`
  await sql`
    insert into indexer.batch_recipient (chain_id, tx_hash, log_index, recipient, sequence, payment_count, total,
      block_number, block_time)
    select ${chainId}::int, '0x' || md5('tx ' || sequence) || md5(sequence::text), 99,
      '0x' || left(md5('to ' || provider) || md5(provider::text), 40), sequence, count(*), count(*) * 47500,
      1000 + sequence, max(max(extract(epoch from accepted_at)::bigint + 60)) over (partition by sequence)
    from ${made(sql, size)} made where not is_open group by sequence, provider order by sequence`
  await sql`
    insert into indexer.batch (chain_id, tx_hash, log_index, sequence, batch_id, keeper, token, trigger, authorizations,
      payment_count, provider_total, fee_total, outcomes, block_number, block_hash, block_time, gas_used,
      effective_gas_price, l1_fee)
    select ${chainId}::int, tx_hash, 99, sequence, tx_hash, '0x' || repeat('ee', 20), ${token}, 1, 2 * sum(payment_count),
      sum(payment_count), sum(total), sum(payment_count) * 2500, '0x11', block_number,
      '0x' || md5('block ' || sequence) || md5(sequence::text), max(block_time), 90000, 1000000, 2000000000
    from indexer.batch_recipient group by tx_hash, sequence, block_number order by sequence`
  await sql`
    insert into confirmation (chain_id, block_number, block_hash, confirmed_at)
    select chain_id, block_number, block_hash, to_timestamp(block_time + 20) from indexer.batch`
}

/** Puts the index where the chain would be, and says whom to ask for. */
export async function readViewsData(sql: Database, chainId: number): Promise<ViewsData> {
  const [{ batches }] = await sql<
    [{ batches: number }]
  >`select max(sequence)::int as batches from indexer.batch`
  await setIndexedHead(sql, {
    chainId,
    blockNumber: 2_000 + batches,
    blockTime: Math.floor(Date.now() / 1000),
  })
  const rows = await sql<{ providerId: string; address: Address }[]>`
    select provider_id as "providerId", address from wallet
    where id in (select 'wal_' || md5('wallet ' || n) from generate_series(0, 200) n)
    order by provider_id = ${'prov_'} || md5('provider 0') desc`
  const [great, ...others] = rows
  if (!great) throw new Error('there is no provider')
  return {
    greatProviderId: great.providerId,
    greatWallet: great.address,
    providerIds: others.map(({ providerId }) => providerId),
    wallets: others.map(({ address }) => address),
    batches,
  }
}

/** Keys and indexes are made again at the end: that is many times faster than keeping them up to date row by row. */
async function dropKeys(sql: Connection, tables: readonly string[]): Promise<() => Promise<void>> {
  // What a foreign key points to stays.
  const keys = await sql<{ table: string; name: string; definition: string }[]>`
    select conrelid::regclass::text as table, conname as name, pg_get_constraintdef(oid) as definition
    from pg_constraint c where conrelid = any(${tables}::regclass[]) and contype in ('p', 'u')
      and not exists (select from pg_constraint f where f.contype = 'f' and f.conindid = c.conindid)`
  const indexes = await sql<{ name: string; definition: string }[]>`
    select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition from pg_index i
    where indrelid = any(${tables}::regclass[])
      and not exists (select from pg_constraint c where c.conindid = i.indexrelid)`
  for (const { table, name } of keys) await sql.unsafe(`alter table ${table} drop constraint ${name}`)
  for (const { name } of indexes) await sql.unsafe(`drop index ${name}`)
  return async () => {
    for (const { table, name, definition } of keys) {
      await sql.unsafe(`alter table ${table} add constraint ${name} ${definition}`)
    }
    for (const { definition } of indexes) await sql.unsafe(definition)
  }
}
