import type { Address, Hex } from 'viem'
import type { Trigger } from '#protocol/settlement'
import type { Queryable } from './database.ts'
import type { Lease } from './leases.ts'
import type { TransferReport } from './transferReports.ts'

export type BatchState = 'claimed' | 'broadcast' | 'mined' | 'reorged' | 'closed'
export type BatchOutcome = 'settled' | 'nothing_left' | 'released' | 'reverted' | 'lost'

export type BatchRow = {
  id: bigint
  batchId: Hex
  chainId: number
  token: Address
  feeRecipient: Address
  trigger: Trigger
  wallet: Address
  state: BatchState
  /** What POST /submit asked for: settled as a whole, or not at all. */
  isSubmission: boolean
  /** Milliseconds since it was claimed, by the database's clock, as of when it was read. */
  ageMs: number
}

/** The columns of {@link BatchRow} of a row that is called `name`. */
export function batchColumns(sql: Queryable, name = 'batch') {
  const row = sql(name)
  return sql`${row}.id, ${row}.batch_id as "batchId", ${row}.chain_id as "chainId", ${row}.token,
    ${row}.fee_recipient as "feeRecipient", ${row}.trigger, ${row}.wallet, ${row}.state,
    exists (select from submission s where s.batch_id = ${row}.id) as "isSubmission",
    (extract(epoch from clock_timestamp() - ${row}.created_at) * 1000)::float8 as "ageMs"`
}

export type NewBatch = {
  batchId: Hex
  token: Address
  feeRecipient: Address
  trigger: Trigger
}

export async function insertBatch(
  sql: Queryable,
  lease: Lease,
  batch: NewBatch,
  items: ({ paymentId: string } | { transferId: bigint })[],
): Promise<BatchRow> {
  const [row] = await sql<BatchRow[]>`
    insert into batch (batch_id, chain_id, token, fee_recipient, trigger, wallet, fence)
    values (${batch.batchId}, ${lease.chainId}, ${batch.token}, ${batch.feeRecipient}, ${batch.trigger},
      ${lease.address}, ${lease.fence})
    returning ${batchColumns(sql)}`
  if (!row) throw new Error('insert into batch returned no row')
  await sql`
    insert into batch_item ${sql(
      items.map((item, position) => ({
        batch_id: row.id,
        position,
        payment_id: 'paymentId' in item ? item.paymentId : null,
        transfer_id: 'transferId' in item ? item.transferId : null,
      })),
    )}`
  return row
}

/** A wallet's batches that still need its attention, the lowest nonce first. */
export async function readWalletBatches(
  sql: Queryable,
  chainId: number,
  wallet: Address,
): Promise<BatchRow[]> {
  return sql<BatchRow[]>`
    select ${batchColumns(sql)} from batch
    where chain_id = ${chainId} and wallet = ${wallet} and state in ('claimed', 'broadcast', 'reorged')
    order by (select min(t.nonce) from transaction t where t.batch_id = batch.id) nulls last, id`
}

/** The batches that are on chain, as far as we know, and not deep enough yet. */
export async function readMinedBatches(sql: Queryable, chainId: number): Promise<BatchRow[]> {
  return sql<BatchRow[]>`
    select ${batchColumns(sql)} from batch where chain_id = ${chainId} and state = 'mined' order by id`
}

/** Those among them whose transaction stands in a block. */
export async function readBatchesMinedIn(
  sql: Queryable,
  chainId: number,
  blockHash: Hex,
): Promise<BatchRow[]> {
  return sql<BatchRow[]>`
    select ${batchColumns(sql)} from batch
    where chain_id = ${chainId} and state = 'mined'
      and id in (select batch_id from transaction where mined_block_hash = ${blockHash} and resolved_at is null)
    order by id`
}

/** Locks a batch; null if it has left that state meanwhile. */
export async function lockBatch(sql: Queryable, id: bigint, state: BatchState): Promise<BatchRow | null> {
  const [row] = await sql<BatchRow[]>`
    select ${batchColumns(sql)} from batch where id = ${id} and state = ${state} for update`
  return row ?? null
}

export async function setBatchState(
  sql: Queryable,
  id: bigint,
  state: Exclude<BatchState, 'closed'>,
): Promise<void> {
  await sql`update batch set state = ${state} where id = ${id} and state <> 'closed'`
}

/**
 * Closes a batch: what is still active in it can be claimed again, its nonce is over.
 *
 * @param failure why what POST /submit asked for is given up; asking again starts over. null: it isn't.
 */
export async function closeBatch(
  sql: Queryable,
  id: bigint,
  {
    outcome,
    failure,
    report,
    now,
  }: { outcome: BatchOutcome; failure: string | null; report?: readonly TransferReport[]; now: Date },
): Promise<void> {
  await sql`
    with closed as (
      update batch set state = 'closed', outcome = ${outcome}, closed_at = ${now}
      where id = ${id} and state <> 'closed'
    ), answered as (
      update submission set failure_code = ${failure}, report = ${report ? sql.json(report) : null}
      where batch_id = ${id} and ${failure}::text is not null
    ), over as (
      update transaction set resolved_at = ${now} where batch_id = ${id} and resolved_at is null
    )
    update batch_item set active = false where batch_id = ${id} and active`
}

/** Releases items by their positions. */
export async function releaseItems(
  sql: Queryable,
  batchId: bigint,
  positions: readonly number[],
): Promise<void> {
  if (positions.length === 0) return
  await sql`
    update batch_item set active = false where batch_id = ${batchId} and active and position in ${sql(positions)}`
}

/** Releases one item; false if it had been released before. */
export async function releaseItem(sql: Queryable, batchId: bigint, position: number): Promise<boolean> {
  const rows = await sql`
    update batch_item set active = false
    where batch_id = ${batchId} and position = ${position} and active
    returning position`
  return rows.length > 0
}

export async function recordOutcome(
  sql: Queryable,
  batchId: bigint,
  position: number,
  outcome: { provider: number; fee: number },
): Promise<void> {
  await sql`
    update batch_item set provider_outcome = ${outcome.provider}, fee_outcome = ${outcome.fee}
    where batch_id = ${batchId} and position = ${position}`
}
