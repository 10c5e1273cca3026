import type { Address, Hash, Hex } from 'viem'
import type { Evidence } from '#chain/evidence'
import type { Queryable } from '../store/database.ts'
import { isAuthorization } from './halves.ts'

// The record of what the chain did: every use and cancellation of an authorization of ours, block by block. Whoever asks
// what is paid reads it, through halves.ts. A reorg deletes the block, and what it showed is gone with it.

/** What a network's payments are read and written by. */
export type RecordScope = { chainId: number; token: Address }

/** A block that something of ours stands in. */
export type RecordedBlock = { blockNumber: bigint; blockHash: Hex }

/** Whose word an event is: our own transaction's receipt, the index, or a search in USDC's logs. */
export type EventSource = 'receipt' | 'index' | 'lookup'

/** An event as the index shows it. */
export type IndexedEvent = Evidence & { batchLogIndex: number | null }

/**
 * Records what happened to authorizations of ours; events of others are left out. An event that is known from another
 * block is put into the place of that one: its block was just seen to stand.
 *
 * This is the only place that says what is paid.
 *
 * @returns the payments that it touches.
 */
export async function recordEvents(
  sql: Queryable,
  { chainId, token }: RecordScope,
  events: readonly (Evidence & { batchLogIndex?: number | null })[],
  source: EventSource,
): Promise<string[]> {
  if (events.length === 0) return []
  const texts = <Key extends keyof Evidence>(key: Key) => events.map((one) => one[key]?.toString() ?? null)
  const rows = await sql<{ id: string }[]>`
    with given as (
      select * from unnest(${texts('authorizer')}::text[], ${texts('nonce')}::text[], ${texts('state')}::text[],
        ${texts('recipient')}::text[], ${texts('value')}::numeric[], ${texts('txHash')}::text[],
        ${events.map(({ logIndex }) => logIndex)}::integer[],
        ${events.map(({ batchLogIndex }) => batchLogIndex ?? null)}::integer[], ${texts('blockNumber')}::bigint[],
        ${texts('blockHash')}::text[], ${texts('blockTime')}::bigint[]
      ) as g (authorizer, nonce, state, recipient, value, tx_hash, log_index, batch_log_index, number, hash, time)
    ), ours as materialized (
      select a.payment_id, a.half, given.*,
        coalesce(p.splitter, case when p.source = 'submission' then (
          select s.address from splitter s where s.chain_id = ${chainId} and s.token = ${token} and s.address = a.recipient
        ) end) as splitter,
        case
          when given.state = 'cancelled' then 'cancelled'
          when given.recipient = a.recipient and given.value = a.value
            and (a.accepted_block is null or given.number > a.accepted_block) then 'settled'
          else 'foreign_use'
        end as half_state
      from given
      cross join lateral (
        select * from signed_authorization a
        where ${isAuthorization(sql, { chainId, token }, { payer: sql`given.authorizer`, nonce: sql`given.nonce` })}
        offset 0
      ) a
      join payment p on p.id = a.payment_id
      where not exists (
        select from authorization_event e join recorded_block b on b.id = e.block_id
        where e.payment_id = a.payment_id and e.half = a.half and b.hash = given.hash
      )
    ), block as (
      insert into recorded_block (chain_id, number, hash, time)
      select distinct ${chainId}::integer, number, hash, time from ours order by number
      -- What is new in it is looked at, and told, though it was confirmed before.
      on conflict (chain_id, number, hash) do update set looked = 0, confirmed_at = null
      returning id, hash
    )
    insert into authorization_event as known (payment_id, half, state, source, tx_hash, log_index, batch_log_index, block_id,
      splitter)
    select payment_id, half, half_state, ${source}, tx_hash, log_index, batch_log_index, block.id, splitter
    from ours join block using (hash)
    order by payment_id, half
    on conflict (payment_id, half) do update set state = excluded.state, source = excluded.source,
      tx_hash = excluded.tx_hash, log_index = excluded.log_index, batch_log_index = excluded.batch_log_index,
      block_id = excluded.block_id
      where known.block_id <> excluded.block_id
    returning payment_id as id`
  return [...new Set(rows.map(({ id }) => id))]
}

/** What of an index isn't recorded, the lowest blocks first. */
export type Unrecorded = {
  events: IndexedEvent[]
  payouts: (RecordedBlock & {
    blockTime: bigint
    splitter: Address
    logIndex: number
    txHash: Hash
    isPlatformPaid: boolean
  })[]
  /** Blocks of which only strangers' batches are of interest. */
  blocks: (RecordedBlock & { blockTime: bigint })[]
}

/** How far back blocks are recorded for strangers' batches alone. */
const strangersBlocks = 50_000n

/**
 * What the index shows of ours in the blocks (after, upTo] and the record doesn't have.
 *
 * @param limit of events.
 */
export async function readUnrecorded(
  sql: Queryable,
  { chainId, token }: RecordScope,
  { after, upTo }: { after: bigint; upTo: bigint },
  limit: number,
): Promise<Unrecorded> {
  const within = sql`chain_id = ${chainId} and block_number > ${after} and block_number <= ${upTo}`
  const [events, payouts, blocks] = await Promise.all([
    sql<IndexedEvent[]>`
      select used.authorizer, used.nonce, used.state, used.recipient, used.value, used.tx_hash as "txHash",
        used.log_index as "logIndex", used.batch_log_index as "batchLogIndex", used.block_number as "blockNumber",
        used.block_hash as "blockHash", used.block_time as "blockTime"
      from (
        select * from indexer.authorization where ${within} and token = ${token}
      ) used
      -- Looked up one by one: of a few new uses, a plan that joins the tables would read all that was ever signed.
      cross join lateral (
        select payment_id, half from signed_authorization a
        where ${isAuthorization(sql, { chainId, token }, { payer: sql`used.authorizer`, nonce: sql`used.nonce` })}
        offset 0
      ) a
      where not exists (
        select from authorization_event e join recorded_block b on b.id = e.block_id
        where e.payment_id = a.payment_id and e.half = a.half and b.hash = used.block_hash
      )
      order by used.block_number
      limit ${limit}`,
    sql<Unrecorded['payouts']>`
      select o.splitter, o.log_index as "logIndex", o.tx_hash as "txHash", o.block_number as "blockNumber",
        o.block_hash as "blockHash", o.block_time as "blockTime", o.platform_recipient = s.platform as "isPlatformPaid"
      from (select * from indexer.payout where ${within} and token = ${token}) o
      join splitter s on s.chain_id = ${chainId} and s.token = ${token} and s.address = o.splitter
      where not exists (
        select from payout known join recorded_block b on b.id = known.block_id
        where known.splitter = o.splitter and known.log_index = o.log_index and b.hash = o.block_hash
      )
      order by o.block_number`,
    sql<Unrecorded['blocks']>`
      select distinct block_number as "blockNumber", block_hash as "blockHash", block_time as "blockTime"
      from (select * from indexer.batch where ${within} and block_number > ${upTo - strangersBlocks}) batch
      where not exists (
        select from recorded_block b
        where b.chain_id = ${chainId} and b.number = batch.block_number::bigint and b.hash = batch.block_hash
      )
      order by 1`,
  ])
  return { events, payouts, blocks }
}

/** Records payouts of splitters, and blocks of strangers' batches. */
export async function recordBlocks(
  sql: Queryable,
  { chainId }: RecordScope,
  { payouts, blocks }: Pick<Unrecorded, 'payouts' | 'blocks'>,
): Promise<void> {
  if (payouts.length + blocks.length === 0) return
  const rows = [...payouts, ...blocks].map(({ blockNumber, blockHash, blockTime }) => ({
    number: `${blockNumber}`,
    hash: blockHash,
    time: `${blockTime}`,
  }))
  const paid = payouts.map(({ splitter, logIndex, txHash, isPlatformPaid, blockHash }) => ({
    ...{ splitter, hash: blockHash, log_index: logIndex, tx_hash: txHash, is_platform_paid: isPlatformPaid },
  }))
  await sql`
    with block as (
      insert into recorded_block as known (chain_id, number, hash, time)
      select distinct ${chainId}::integer, number, hash, time
      from json_to_recordset(${JSON.stringify(rows)}::text::json) as g (number bigint, hash text, time bigint)
      order by number
      on conflict (chain_id, number, hash) do update set time = excluded.time
      returning id, hash
    )
    insert into payout (splitter, block_id, log_index, tx_hash, is_platform_paid)
    select p.splitter, block.id, p.log_index, p.tx_hash, p.is_platform_paid
    from json_to_recordset(${JSON.stringify(paid)}::text::json)
      as p (splitter text, hash text, log_index integer, tx_hash text, is_platform_paid boolean)
    join block using (hash)
    on conflict do nothing`
}

/** How far the index was read into the record. */
export type RecordHead = { blockNumber: bigint /** Unix seconds. */; blockTime: bigint }

export async function readRecordHead(sql: Queryable, chainId: number): Promise<RecordHead | null> {
  const [row] = await sql<RecordHead[]>`
    select block_number as "blockNumber", block_time as "blockTime" from record_head where chain_id = ${chainId}`
  return row ?? null
}

export async function moveRecordHead(sql: Queryable, chainId: number, head: RecordHead): Promise<void> {
  await sql`
    insert into record_head (chain_id, block_number, block_time)
    values (${chainId}, ${head.blockNumber}, ${head.blockTime})
    on conflict (chain_id) do update set block_number = excluded.block_number, block_time = excluded.block_time,
      read_at = clock_timestamp()`
}

/** Milliseconds since anybody read the index into the record; null: nobody ever did. */
export async function readRecordAge(sql: Queryable, chainId: number): Promise<number | null> {
  const [row] = await sql<{ age: number }[]>`
    select (extract(epoch from clock_timestamp() - read_at) * 1000)::float8 as age
    from record_head where chain_id = ${chainId}`
  return row?.age ?? null
}

/** The highest block of which providers were told something; 0 before the first. An index below it is behind. */
export async function readToldBlock(sql: Queryable, chainId: number): Promise<bigint> {
  const [row] = await sql<{ number: bigint }[]>`
    select number from recorded_block where chain_id = ${chainId} and confirmed_at is not null
    order by number desc limit 1`
  return row?.number ?? 0n
}

/** The lowest block of which the index lacks a receipt: what it shows of it and what follows may not be all. */
export async function readIndexHole(sql: Queryable, chainId: number): Promise<bigint | null> {
  const [row] = await sql<[{ number: bigint | null }]>`
    select min(block_number) as number from indexer.quarantine
    where chain_id = ${chainId} and reason = 'receipt_unavailable'`
  return row.number
}

/** The blocks that aren't final: what was recorded, and those of mined batches, the lowest first. */
export async function readYoungBlocks(sql: Queryable, chainId: number): Promise<RecordedBlock[]> {
  return sql<RecordedBlock[]>`
    select number as "blockNumber", hash as "blockHash" from recorded_block
    where chain_id = ${chainId} and not is_final
    union
    select t.mined_block, t.mined_block_hash from batch b join transaction t on t.batch_id = b.id
    where b.chain_id = ${chainId} and b.state = 'mined' and t.mined_block is not null
    order by 1`
}

/** A block is too deep for a reorg: it isn't held against the chain again, unless it is found to be gone all the same. */
export async function setFinal(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: RecordedBlock,
  isFinal = true,
): Promise<void> {
  await sql`
    update recorded_block set is_final = ${isFinal}
    where chain_id = ${chainId} and number = ${blockNumber} and hash = ${blockHash} and is_final <> ${isFinal}`
}

/** Takes a block back that is no longer part of the chain, with all that it showed. */
export async function dropBlock(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: RecordedBlock,
): Promise<number> {
  const [row] = await sql<[{ events: number }]>`
    with gone as (
      delete from recorded_block where chain_id = ${chainId} and number = ${blockNumber} and hash = ${blockHash}
      returning id
    ), lowered as (
      update record_head set block_number = least(block_number, ${blockNumber - 1n}) where chain_id = ${chainId}
    )
    select count(*)::int as events from authorization_event where block_id in (select id from gone)`
  return row.events
}

/** The newest blocks between two heights that were confirmed, the newest first. */
export async function readConfirmedBlocks(
  sql: Queryable,
  chainId: number,
  { above, below, limit }: { above?: bigint; below?: bigint | undefined; limit: number },
): Promise<RecordedBlock[]> {
  return sql<RecordedBlock[]>`
    select number as "blockNumber", hash as "blockHash" from recorded_block
    where chain_id = ${chainId} and confirmed_at is not null and number > ${above ?? -1n}
      and (${below ?? null}::bigint is null or number < ${below ?? null})
    order by number desc limit ${limit}`
}

/** The blocks up to `safeBlock` whose confirmation isn't written down, the lowest first. */
export async function readUnconfirmedBlocks(
  sql: Queryable,
  chainId: number,
  safeBlock: bigint,
  limit: number,
): Promise<RecordedBlock[]> {
  return sql<RecordedBlock[]>`
    select number as "blockNumber", hash as "blockHash" from recorded_block
    where chain_id = ${chainId} and confirmed_at is null and number <= ${safeBlock}
    order by number limit ${limit}`
}

/** Writes down when a block got its depth; false where somebody else did. */
export async function setConfirmed(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: RecordedBlock,
  confirmedAt: Date,
): Promise<boolean> {
  const rows = await sql`
    update recorded_block set confirmed_at = ${confirmedAt}
    where chain_id = ${chainId} and number = ${blockNumber} and hash = ${blockHash} and confirmed_at is null
    returning id`
  return rows.length > 0
}

export type LookupRequest = { paymentId: string; from: Address; nonce: Hex; acceptedAt: Date }

/** A half of these is spent on chain, and the record doesn't show it: the keeper is to find out by whom. */
export async function requestLookups(
  sql: Queryable,
  paymentIds: readonly string[],
  now: Date,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    insert into lookup (payment_id, chain_id, requested_at)
    select id, chain_id, ${now} from payment where id = any(${[...paymentIds]}::text[])
    on conflict do nothing`
}

/** The halves of which the record says nothing, of payments that are to be looked up. */
export async function readLookupRequests(
  sql: Queryable,
  chainId: number,
  limit: number,
): Promise<LookupRequest[]> {
  return sql<LookupRequest[]>`
    select p.id as "paymentId", a.authorizer as "from", a.nonce, p.accepted_at as "acceptedAt"
    from lookup l
    join payment p on p.id = l.payment_id
    join signed_authorization a on a.payment_id = p.id
    where l.chain_id = ${chainId}
      and not exists (select from authorization_event e where e.payment_id = a.payment_id and e.half = a.half)
    order by l.requested_at
    limit ${limit}`
}

/** Stops looking for payments of which nothing is left to be found. */
export async function endLookups(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  await sql`delete from lookup where payment_id = any(${[...paymentIds]}::text[])`
}
