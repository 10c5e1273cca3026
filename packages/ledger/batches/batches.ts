import type { Trigger } from '@tollkeeper/sdk/protocol/settlement'
import type { Address, Hex } from 'viem'
import type { Lane } from '../queue/lanes.ts'
import { markSent, releasePayments } from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'

export type BatchState = 'claimed' | 'broadcast' | 'mined' | 'reorged' | 'closed'
export type BatchOutcome = 'settled' | 'nothing_left' | 'released' | 'reverted' | 'lost'

export type BatchRow = {
  id: bigint
  batchId: Hex
  chainId: number
  token: Address
  feeRecipient: Address
  trigger: Trigger
  /** The lane `direct` settles a batch as a whole, or not at all. */
  lane: Lane
  wallet: Address
  state: BatchState
  /** Milliseconds from its claim to this read, by the database's clock. */
  ageMs: number
}

/** The columns of {@link BatchRow} of a row that is called `name`. */
export function batchColumns(sql: Queryable, name = 'batch') {
  const row = sql(name)
  return sql`${row}.id, ${row}.batch_id as "batchId", ${row}.chain_id as "chainId", ${row}.token,
    ${row}.fee_recipient as "feeRecipient", ${row}.trigger, ${row}.lane, ${row}.wallet,
    ${row}.state,
    (extract(epoch from clock_timestamp() - ${row}.created_at) * 1000)::float8 as "ageMs"`
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

/** The batches that we know to be on chain, but not deep enough yet. */
export async function readMinedBatches(sql: Queryable, chainId: number): Promise<BatchRow[]> {
  return sql<BatchRow[]>`
    select ${batchColumns(sql)} from batch where chain_id = ${chainId} and state = 'mined' order by id`
}

/** The mined batches whose transaction stands in a block. */
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

/** Locks a batch in a state; null if it has left that state. */
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
  if (state === 'broadcast') await markSent(sql, id)
}

/** Closes a batch: its payments return to where they stood before, and its nonce is over. */
export async function closeBatch(
  sql: Queryable,
  id: bigint,
  outcome: BatchOutcome,
  now: Date,
): Promise<void> {
  await releasePayments(sql, id, now)
  await sql`
    with closed as (
      update batch set state = 'closed', outcome = ${outcome}, closed_at = ${now}
      where id = ${id} and state <> 'closed'
    )
    update transaction set resolved_at = ${now} where batch_id = ${id} and resolved_at is null`
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
