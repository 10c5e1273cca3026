import type { Evidence } from '@tollkeeper/chain/evidence'
import type { SettledBatch } from '@tollkeeper/chain/settledBatches'
import type { SettledTab } from '@tollkeeper/chain/settledTabs'
import { toWord } from '@tollkeeper/sdk/protocol/tab'
import type { Address, Hash, Hex } from 'viem'
import type { Queryable } from '../store/database.ts'
import { isAuthorization } from './halves.ts'

// The record of the chain: every use and cancellation of one of our authorizations, and every batch, by block. All code that needs to know
// what is paid reads it through halves.ts. A reorg deletes a block together with its events.

/** The chain and token that identify a network's payments. */
export type RecordScope = { chainId: number; token: Address }

/** A block that is in the record. */
export type RecordedBlock = { blockNumber: bigint; blockHash: Hex }

/** The source of an event: our own transaction's receipt, the index, or a search in USDC's logs. */
export type EventSource = 'receipt' | 'index' | 'lookup'

export type IndexedEvent = Evidence & { batchLogIndex: number | null }

/**
 * Records events of our authorizations, and ignores all other events. If an event is already known from another block, the new event replaces the
 * known event, because the new event's block was just seen on the chain.
 *
 * A tab is settled by any of its states that paid at least the charged amount on each of our lines, to our platform, and with no larger reward. A
 * state may sign more than is charged, so a state that moved less than the accepted state can still pay for everything. A payer can settle a state
 * under other terms, for example with itself as the platform. That is a foreign use: the tab's lines count with the amounts that moved, and
 * `lost_fee_share` is the share of the platform's part that went elsewhere. If another state than the accepted state moved, its amounts are stored
 * with the tab's lines (`moved`). Amounts on lines that the tab doesn't have here are stored with the event (`unknown_lines`). If the tab's nonce was
 * used, but not by TabSettlement, no state moved.
 *
 * Only this function decides what is paid.
 *
 * @returns the payments with recorded events.
 */
export async function recordEvents(
  sql: Queryable,
  { chainId, token }: RecordScope,
  events: readonly (Evidence & { batchLogIndex?: number | null })[],
  source: EventSource,
): Promise<string[]> {
  if (events.length === 0) return []
  const texts = <Key extends Exclude<keyof Evidence, 'tab'>>(key: Key) =>
    events.map((one) => one[key]?.toString() ?? null)
  const lines = events.flatMap(({ tab }, event) => (tab?.lines ?? []).map((line) => ({ event, ...line })))
  const rows = await sql<{ id: string }[]>`
    with given as (
      select * from unnest(${texts('authorizer')}::text[], ${texts('nonce')}::text[], ${texts('state')}::text[],
        ${texts('recipient')}::text[], ${texts('value')}::numeric[], ${texts('txHash')}::text[],
        ${events.map(({ logIndex }) => logIndex)}::integer[],
        ${events.map(({ batchLogIndex }) => batchLogIndex ?? null)}::integer[], ${texts('blockNumber')}::bigint[],
        ${texts('blockHash')}::text[], ${texts('blockTime')}::bigint[],
        ${events.map(({ tab }) => tab?.platform ?? null)}::text[],
        ${events.map(({ tab }) => tab?.rewardShare ?? null)}::integer[]
      ) with ordinality
        as g (authorizer, nonce, state, recipient, value, tx_hash, log_index, batch_log_index, number, hash, time,
          platform, reward_share, event)
    ), given_line as materialized (
      -- Two lines of the same split are distinguished by their order.
      select event, split, amount, place, row_number() over (partition by event, split order by place) as occurrence
      from unnest(${lines.map(({ event }) => event + 1)}::integer[], ${lines.map(({ split }) => toWord(split))}::text[],
        ${lines.map(({ amount }) => `${amount}`)}::bigint[]) with ordinality as l (event, split, amount, place)
    ), ours as materialized (
      select a.payment_id, a.half, given.*, p.source = 'tab' as is_tab, terms.lost_fee_share,
        coalesce(p.splitter, case when p.source = 'submission' then (
          select s.address from splitter s where s.chain_id = ${chainId} and s.token = ${token} and s.address = a.recipient
        ) end) as splitter,
        case
          when given.state = 'cancelled' then 'cancelled'
          when p.source = 'tab' then case when terms.lost_fee_share = 0 and (
            select bool_and(moved.amount >= moved.charged) from ${movedLines(sql)} moved
          ) then 'settled' else 'foreign_use' end
          when given.recipient = a.recipient and given.value = a.value
            and (a.accepted_block is null or given.number > a.accepted_block) then 'settled'
          else 'foreign_use'
        end as half_state,
        case when p.source = 'tab' and terms.lost_fee_share = 0 then ${unknownLines(sql)} end as unknown_lines
      from given
      -- Look up the rows one by one: a plan that joins the tables would read all payments.
      cross join lateral (
        select * from signed_authorization a
        where ${isAuthorization(sql, { chainId, token }, { payer: sql`given.authorizer`, nonce: sql`given.nonce` })}
        offset 0
      ) a
      cross join lateral (select * from payment where id = a.payment_id offset 0) p
      left join lateral (select * from tab_payment where payment_id = p.id offset 0) t on true
      cross join lateral (
        select case
          when given.platform is null or t.payment_id is null then 0
          when given.platform <> p.fee_recipient then 10000
          else greatest(0, given.reward_share - t.reward_share)
        end as lost_fee_share
      ) terms
      where ${isRecorded(sql, sql`given.hash`)} is null
    ), moved as (
      update tab_line l set moved = case when other.is_other then other.amount end
      from (
        select a.payment_id, moved.position, moved.amount,
          a.state = 'used' and (
            a.lost_fee_share > 0 or bool_or(moved.amount <> moved.signed) over (partition by a.payment_id)
          ) as is_other
        from ours a cross join lateral (select a.event) given cross join lateral ${movedLines(sql)} moved
        where a.is_tab
      ) other
      where l.payment_id = other.payment_id and l.position = other.position
    ), block as (
      insert into recorded_block (chain_id, number, hash, time)
      select distinct ${chainId}::integer, number, hash, time from ours order by number
      -- The payments of new events must be checked, and their providers notified, even if the block was already confirmed.
      on conflict (chain_id, number, hash) do update set looked = 0, confirmed_at = null
      returning id, hash
    )
    insert into authorization_event as known (payment_id, half, state, source, tx_hash, log_index, batch_log_index, block_id,
      splitter, lost_fee_share, unknown_lines)
    select payment_id, half, half_state, ${source}, tx_hash, log_index, batch_log_index, block.id, splitter, lost_fee_share,
      unknown_lines
    from ours join block using (hash)
    order by payment_id, half
    on conflict (payment_id, half) do update set state = excluded.state, source = excluded.source,
      tx_hash = excluded.tx_hash, log_index = excluded.log_index, batch_log_index = excluded.batch_log_index,
      block_id = excluded.block_id, lost_fee_share = excluded.lost_fee_share, unknown_lines = excluded.unknown_lines
      where known.block_id <> excluded.block_id
    returning payment_id as id`
  return [...new Set(rows.map(({ id }) => id))]
}

/**
 * Returns three amounts for each line of the tab that the authorization `a` pays: signed, charged, and moved according to the event `given`.
 */
function movedLines(sql: Queryable) {
  return sql`(
    select own.position, own.amount as signed, own.charged, l.place, coalesce(l.amount, 0) as amount
    from (
      select t.position, t.amount, t.charged, '0x' || substr(t.payee, 3) || lpad(to_hex(t.provider_share), 12, '0')
          || lpad(to_hex(t.platform_share), 12, '0') as split,
        row_number() over (partition by t.payee, t.provider_share, t.platform_share order by t.position) as occurrence
      from tab_line t where t.payment_id = a.payment_id
    ) own
    left join given_line l on l.event = given.event and l.split = own.split and l.occurrence = own.occurrence
  )`
}

/**
 * Returns the amounts that the event `given` moved on lines that the tab of the authorization `a` doesn't have in the ledger; null if there
 * are none. Such lines exist if the tab was imported with a shorter state, or if the gateway refused the request that added them.
 */
function unknownLines(sql: Queryable) {
  return sql`(
    select jsonb_agg(jsonb_build_object('split', l.split, 'amount', l.amount) order by l.place)
    from given_line l
    where l.event = given.event and l.amount > 0
      and not exists (select from ${movedLines(sql)} known where known.place = l.place)
  )`
}

/**
 * Returns an expression that is true if an event of the authorization `a` is recorded for the block of this hash, and null otherwise. It
 * looks up each row, because a plan that joins the tables would read the whole record.
 */
function isRecorded(sql: Queryable, blockHash: ReturnType<typeof sql>) {
  return sql`(
    select true from authorization_event e join recorded_block b on b.id = e.block_id
    where e.payment_id = a.payment_id and e.half = a.half and b.hash = ${blockHash} limit 1
  )`
}

/** Records a block with one of our transactions, even if the block contains none of our events. */
export async function recordBlock(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash, blockTime }: RecordedBlock & { blockTime: bigint },
): Promise<void> {
  await sql`
    insert into recorded_block (chain_id, number, hash, time) values (${chainId}, ${blockNumber}, ${blockHash}, ${blockTime})
    on conflict (chain_id, number, hash) do nothing`
}

/** A batch with its number among the chain's batches. The index assigns the numbers, so a batch has none if only our receipt has shown it so far. */
export type NumberedBatch = Omit<SettledBatch, 'recipients'> & {
  sequence: number | null
  /** `total` is a decimal string if it comes from the index. */
  recipients: { recipient: Address; paymentCount: number; total: bigint | string }[]
  /** Set if the block was already deep when it was read, so that no one is notified of it. */
  confirmedAt?: Date
}

/** The unrecorded part of an index, the lowest blocks first. */
export type Unrecorded = {
  events: IndexedEvent[]
  payouts: (RecordedBlock & {
    blockTime: bigint
    splitter: Address
    logIndex: number
    txHash: Hash
    isPlatformPaid: boolean
  })[]
  batches: NumberedBatch[]
}

/**
 * Reads from the index's blocks (after, upTo] what the record lacks: events of our authorizations, payouts, and all batches.
 *
 * @param limit maximum number of events, and of batches.
 */
export async function readUnrecorded(
  sql: Queryable,
  { chainId, token }: RecordScope,
  { after, upTo }: { after: bigint; upTo: bigint },
  limit: number,
): Promise<Unrecorded> {
  const within = sql`chain_id = ${chainId} and block_number > ${after} and block_number <= ${upTo}`
  const [events, payouts, batches] = await Promise.all([
    sql<(Omit<IndexedEvent, 'tab'> & { tab: Hex | null })[]>`
      select used.authorizer, used.nonce, used.state, used.recipient, used.value, used.tab, used.tx_hash as "txHash",
        used.log_index as "logIndex", used.batch_log_index as "batchLogIndex", used.block_number as "blockNumber",
        used.block_hash as "blockHash", used.block_time as "blockTime"
      from (
        select * from indexer.authorization where ${within} and token = ${token}
      ) used
      -- Look up the rows one by one: for a few new uses, a plan that joins the tables would read all authorizations ever signed.
      cross join lateral (
        select payment_id, half from signed_authorization a
        where ${isAuthorization(sql, { chainId, token }, { payer: sql`used.authorizer`, nonce: sql`used.nonce` })}
        offset 0
      ) a
      where ${isRecorded(sql, sql`used.block_hash`)} is null
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
    sql<NumberedBatch[]>`
      select batch.tx_hash as "txHash", batch.log_index as "logIndex", batch.sequence, batch.keeper,
        batch.trigger as "triggerCode", batch.payment_count as "paymentCount", batch.provider_total as "providerTotal",
        batch.fee_total as "feeTotal", batch.gas_used as "gasUsed",
        batch.gas_used * batch.effective_gas_price + coalesce(batch.l1_fee, 0) as "gasCost",
        batch.block_number as "blockNumber", batch.block_hash as "blockHash", batch.block_time as "blockTime", (
          select coalesce(json_agg(json_build_object('recipient', r.recipient, 'paymentCount', r.payment_count::integer,
            'total', r.total::text)), '[]')
          from indexer.batch_recipient r
          where r.chain_id = batch.chain_id and r.tx_hash = batch.tx_hash and r.log_index = batch.log_index
        ) as recipients
      from (select * from indexer.batch where ${within} and token = ${token}) batch
      where not exists (
        select from recorded_block b join settled_batch known on known.block_id = b.id
        where b.chain_id = ${chainId} and b.number = batch.block_number::bigint and b.hash = batch.block_hash
          and known.log_index = batch.log_index and known.sequence is not null
      )
      order by batch.block_number
      limit ${limit}`,
  ])
  return {
    events: events.map(({ tab, ...event }) => ({ ...event, ...(tab && { tab: readIndexedTab(tab) }) })),
    payouts,
    batches,
  }
}

/**
 * Parses a tab in the index's packed format: the platform (20 bytes), the reward (2), the sequence (5), and for each line its split (32)
 * and amount (6).
 */
function readIndexedTab(hex: Hex): SettledTab {
  const bytes = (from: number, count: number): Hex => `0x${hex.slice(2 + 2 * from, 2 + 2 * (from + count))}`
  const head = 27
  const count = (hex.length / 2 - 1 - head) / 38
  const lines = Array.from({ length: count }, (_, index) => {
    const at = head + 38 * index
    return { split: BigInt(bytes(at, 32)), amount: BigInt(bytes(at + 32, 6)) }
  })
  return {
    platform: bytes(0, 20),
    rewardShare: Number(bytes(20, 2)),
    sequence: Number(bytes(22, 5)),
    lines,
  }
}

/** Returns the statement that stores the blocks of the rows in `given`. If a block is stored already, the statement only updates its time. */
function writeBlocks(sql: Queryable, chainId: number) {
  return sql`
    insert into recorded_block as known (chain_id, number, hash, time, confirmed_at, is_final, looked)
    select distinct ${chainId}::integer, number, hash, time, confirmed_at, confirmed_at is not null,
      case when confirmed_at is null then 0 else 2 end
    from given order by number
    on conflict (chain_id, number, hash) do update set time = excluded.time
    returning id, hash`
}

function placeOf({
  blockNumber,
  blockHash,
  blockTime,
  txHash,
  logIndex,
}: Unrecorded['payouts'][number] | NumberedBatch) {
  return {
    number: `${blockNumber}`,
    hash: blockHash,
    time: `${blockTime}`,
    tx_hash: txHash,
    log_index: logIndex,
  }
}

/** Records payouts of our splitters, regardless of who swept them. */
export async function recordPayouts(
  sql: Queryable,
  { chainId }: RecordScope,
  payouts: Unrecorded['payouts'],
): Promise<void> {
  if (payouts.length === 0) return
  const rows = payouts.map((payout) => ({
    ...placeOf(payout),
    splitter: payout.splitter,
    is_platform_paid: payout.isPlatformPaid,
  }))
  await sql`
    with given as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as g (number bigint, hash text, time bigint,
        confirmed_at timestamptz, splitter text, log_index integer, tx_hash text, is_platform_paid boolean)
    ), block as (${writeBlocks(sql, chainId)})
    insert into payout (splitter, block_id, log_index, tx_hash, is_platform_paid)
    select g.splitter, block.id, g.log_index, g.tx_hash, g.is_platform_paid from given g join block using (hash)
    on conflict do nothing`
}

/**
 * Records batches, regardless of who sent them, with the amount that each wallet received. A batch that is known from our receipt gets its
 * number here.
 */
export async function recordBatches(
  sql: Queryable,
  { chainId }: RecordScope,
  batches: readonly NumberedBatch[],
): Promise<void> {
  if (batches.length === 0) return
  const rows = batches.map((batch) => ({
    ...placeOf(batch),
    sequence: batch.sequence,
    keeper: batch.keeper,
    trigger: batch.triggerCode,
    payment_count: batch.paymentCount,
    confirmed_at: batch.confirmedAt,
    provider_total: `${batch.providerTotal}`,
    fee_total: `${batch.feeTotal}`,
    gas_used: `${batch.gasUsed}`,
    gas_cost: `${batch.gasCost}`,
    recipients: batch.recipients.map(({ recipient, paymentCount, total }) => ({
      recipient,
      payment_count: paymentCount,
      total: `${total}`,
    })),
  }))
  await sql`
    with given as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as g (number bigint, hash text, time bigint,
        confirmed_at timestamptz, log_index integer, tx_hash text, sequence integer, keeper text, trigger smallint,
        payment_count integer, provider_total numeric, fee_total numeric, gas_used bigint, gas_cost numeric, recipients json)
    ), block as (${writeBlocks(sql, chainId)}
    ), written as (
      insert into settled_batch as known (chain_id, block_id, block_time, position, log_index, tx_hash, sequence, keeper,
        trigger, payment_count, provider_total, fee_total, gas_used, gas_cost, is_first)
      select ${chainId}::integer, block.id, g.time, (g.number << 20) + g.log_index, g.log_index, g.tx_hash, g.sequence,
        g.keeper, g.trigger, g.payment_count, g.provider_total, g.fee_total, g.gas_used, g.gas_cost,
        row_number() over (partition by block.id, g.tx_hash order by g.log_index) = 1 and not exists (
          select from settled_batch s where s.block_id = block.id and s.tx_hash = g.tx_hash
        )
      from given g join block using (hash)
      order by g.number, g.log_index
      on conflict (block_id, log_index) do update set sequence = excluded.sequence
        where known.sequence is null and excluded.sequence is not null
      returning id, block_id, block_time, position, log_index
    )
    insert into batch_recipient (batch_id, recipient, chain_id, block_time, position, payment_count, total)
    select w.id, r.recipient, ${chainId}, w.block_time, w.position, r.payment_count, r.total
    from written w join block on block.id = w.block_id join given g on g.hash = block.hash and g.log_index = w.log_index
    cross join lateral json_to_recordset(g.recipients) as r (recipient text, payment_count integer, total numeric)
    on conflict do nothing`
}

/** The progress of reading the index into the record. */
export type RecordHead = {
  /** The record is complete up to this block. */
  blockNumber: bigint
  /** The index was read up to this block. If this is above `blockNumber`, the index has gaps in between. */
  readNumber: bigint
  /** Time of the block `readNumber`, in Unix seconds. */
  blockTime: bigint
}

export async function readRecordHead(sql: Queryable, chainId: number): Promise<RecordHead | null> {
  const [row] = await sql<RecordHead[]>`
    select block_number as "blockNumber", read_number as "readNumber", block_time as "blockTime"
    from record_head where chain_id = ${chainId}`
  return row ?? null
}

/** A {@link RecordHead}. All fields are null if an outer join found no row. */
export type NullableRecordHead = { [Key in keyof RecordHead]: bigint | null }

/** Returns the columns of {@link NullableRecordHead} for a row of `record_head` named `head`. */
export function recordHeadColumns(sql: Queryable) {
  return sql`head.block_number as "blockNumber", head.read_number as "readNumber", head.block_time as "blockTime"`
}

export function toRecordHead({ blockNumber, readNumber, blockTime }: NullableRecordHead): RecordHead | null {
  if (blockNumber === null || readNumber === null || blockTime === null) return null
  return { blockNumber, readNumber, blockTime }
}

/** Reads, in one statement, the record's head and the highest block that providers were notified of. */
export async function readRecordProgress(
  sql: Queryable,
  chainId: number,
): Promise<{ head: RecordHead | null; toldBlock: bigint }> {
  const [row] = await sql<[NullableRecordHead & { toldBlock: bigint }]>`
    select ${recordHeadColumns(sql)}, coalesce(${toldBlock(sql, chainId)}, 0) as "toldBlock"
    from (values (1)) as one (one) left join record_head head on head.chain_id = ${chainId}`
  return { head: toRecordHead(row), toldBlock: row.toldBlock }
}

export async function moveRecordHead(sql: Queryable, chainId: number, head: RecordHead): Promise<void> {
  await sql`
    insert into record_head (chain_id, block_number, read_number, block_time)
    values (${chainId}, ${head.blockNumber}, ${head.readNumber}, ${head.blockTime})
    on conflict (chain_id) do update set block_number = excluded.block_number, read_number = excluded.read_number,
      block_time = excluded.block_time, read_at = clock_timestamp()`
}

/** Reads the milliseconds since any process read the index into the record; null if none ever did. */
export async function readRecordAge(sql: Queryable, chainId: number): Promise<number | null> {
  const [row] = await sql<{ age: number }[]>`
    select (extract(epoch from clock_timestamp() - read_at) * 1000)::float8 as age
    from record_head where chain_id = ${chainId}`
  return row?.age ?? null
}

/** Reads the highest block that providers were notified of; 0 if there is none. If the record ends before this block, the record is behind. */
export async function readToldBlock(sql: Queryable, chainId: number): Promise<bigint> {
  const [row] = await sql<[{ number: bigint | null }]>`select ${toldBlock(sql, chainId)} as number`
  return row.number ?? 0n
}

function toldBlock(sql: Queryable, chainId: number) {
  return sql`(
    select number from recorded_block where chain_id = ${chainId} and confirmed_at is not null
    order by number desc limit 1
  )`
}

/** Reads the lowest block of which the index lacks a receipt. From this block on, the index may be incomplete. */
export async function readIndexGap(sql: Queryable, chainId: number): Promise<bigint | null> {
  const [row] = await sql<[{ number: bigint | null }]>`
    select min(block_number) as number from indexer.index_gap
    where chain_id = ${chainId} and reason = 'receipt_unavailable'`
  return row.number
}

/** Reads the blocks that aren't final, both recorded blocks and blocks of mined batches, the lowest first. */
export async function readYoungBlocks(sql: Queryable, chainId: number): Promise<RecordedBlock[]> {
  return sql<RecordedBlock[]>`
    select number as "blockNumber", hash as "blockHash" from recorded_block
    where chain_id = ${chainId} and not is_final
    union
    select t.mined_block, t.mined_block_hash from batch b join transaction t on t.batch_id = b.id
    where b.chain_id = ${chainId} and b.state = 'mined' and t.mined_block is not null
    order by 1`
}

/** Marks a block as too deep for a reorg, so that it isn't checked against the chain again unless a later block is found to be gone. */
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

/** Deletes a block that is no longer on the chain, together with its events. */
export async function dropBlock(
  sql: Queryable,
  chainId: number,
  { blockNumber, blockHash }: RecordedBlock,
): Promise<number> {
  const [row] = await sql<[{ events: number }]>`
    with gone as (
      delete from recorded_block where chain_id = ${chainId} and number = ${blockNumber} and hash = ${blockHash}
      returning id
    ), unmoved as (
      update tab_line l set moved = null from authorization_event e
      where e.block_id in (select id from gone) and l.payment_id = e.payment_id and l.moved is not null
    ), lowered as (
      update record_head set block_number = least(block_number, ${blockNumber - 1n}) where chain_id = ${chainId}
    )
    select count(*)::int as events from authorization_event where block_id in (select id from gone)`
  return row.events
}

/** Reads the newest confirmed blocks between two heights, the newest first. */
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

/** Reads the blocks up to `safeBlock` whose confirmation isn't stored, except those in `except`, the lowest first. */
export async function readUnconfirmedBlocks(
  sql: Queryable,
  chainId: number,
  safeBlock: bigint,
  limit: number,
  except: readonly Hex[] = [],
): Promise<RecordedBlock[]> {
  return sql<RecordedBlock[]>`
    select number as "blockNumber", hash as "blockHash" from recorded_block
    where chain_id = ${chainId} and confirmed_at is null and number <= ${safeBlock} and hash <> all(${[...except]}::text[])
    order by number limit ${limit}`
}

/** Stores when a block was confirmed. Returns false if another process has already stored it. */
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

export type LookupRequest = {
  paymentId: string
  from: Address
  nonce: Hex
  /**
   * The earliest time at which the nonce can have been used. For a tab, this may be before the tab was closed, because an older state could settle.
   */
  since: Date
}

/** Asks the keeper to look up transactions for these payments: a half of each is used on chain, but the record doesn't show by which transaction. */
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

/** Returns whether a look-up is requested on a network. Usually none is. */
export async function hasLookups(sql: Queryable, chainId: number): Promise<boolean> {
  const rows = await sql`select from lookup where chain_id = ${chainId} limit 1`
  return rows.length > 0
}

/** Reads the payments whose look-up is due now, with one row for each half that has no recorded event. */
export async function readLookupRequests(
  sql: Queryable,
  chainId: number,
  limit: number,
): Promise<LookupRequest[]> {
  return sql<LookupRequest[]>`
    select p.id as "paymentId", a.authorizer as "from", a.nonce, coalesce(t.opened_at, p.accepted_at) as since
    from lookup l
    join payment p on p.id = l.payment_id
    left join tab_payment t on t.payment_id = p.id
    join signed_authorization a on a.payment_id = p.id
    where l.chain_id = ${chainId} and l.look_at <= now()
      and not exists (select from authorization_event e where e.payment_id = a.payment_id and e.half = a.half)
    order by l.look_at, l.requested_at
    limit ${limit}`
}

/** Postpones the look-ups of these payments: first by a second, then twice as long after each failure, up to a minute. */
export async function postponeLookups(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update lookup set looks = least(looks + 1, 10), look_at = now() + least(60, 2 ^ looks) * interval '1 second'
    where payment_id = any(${[...paymentIds]}::text[])`
}

/** Reads the payments that no longer need their requested look-up, because the index has reported the events of all their halves. */
export async function readExplained(sql: Queryable, chainId: number, limit: number): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select l.payment_id as id from lookup l
    where l.chain_id = ${chainId} and not exists (
      select from signed_authorization a where a.payment_id = l.payment_id and not exists (
        select from authorization_event e where e.payment_id = a.payment_id and e.half = a.half
      )
    )
    -- Look-ups that failed were postponed, so they come last.
    order by l.look_at limit ${limit}`
  return rows.map(({ id }) => id)
}

/** Deletes the look-ups of payments, because nothing about these payments is left to find on chain. */
export async function endLookups(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  await sql`delete from lookup where payment_id = any(${[...paymentIds]}::text[])`
}
