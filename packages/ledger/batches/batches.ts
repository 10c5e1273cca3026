import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { Address, Hex } from 'viem'
import type { Lane } from '../queue/lanes.ts'
import { markSent, releasePayments } from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'

export type BatchState = 'claimed' | 'broadcast' | 'mined' | 'reorged' | 'closed'
export type BatchResult = 'settled' | 'nothing_left' | 'released' | 'reverted' | 'lost'

export type BatchRow = {
  id: bigint
  batchId: Hex
  chainId: number
  token: Address
  feeRecipient: Address
  trigger: Trigger
  /** The lane `submission` settles a batch completely or not at all. */
  lane: Lane
  wallet: Address
  state: BatchState
  /** Milliseconds from its claim to this read, by the database's clock. */
  ageMs: number
}

/** Returns the columns of {@link BatchRow} for a row named `name`. */
export function batchColumns(sql: Queryable, name = 'batch') {
  const row = sql(name)
  return sql`${row}.id, ${row}.batch_id as "batchId", ${row}.chain_id as "chainId", ${row}.token,
    ${row}.fee_recipient as "feeRecipient", ${row}.trigger, ${row}.lane, ${row}.wallet,
    ${row}.state,
    (extract(epoch from clock_timestamp() - ${row}.created_at) * 1000)::float8 as "ageMs"`
}

/** Reads a wallet's open batches, the lowest nonce first. */
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

/**
 * Finds payments whose payer has another payment in a high-value batch that isn't mined yet. If the payer's account has code, the
 * payer can make all its payments in flight fail at once, and the keeper would pay their gas.
 */
export async function findBehindOwnPayer(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: Address },
  paymentIds: readonly string[],
): Promise<Set<string>> {
  if (paymentIds.length === 0) return new Set()
  const rows = await sql<{ id: string }[]>`
    select payment_id as id from queue
    where payment_id in ${sql(paymentIds)} and payer in (
      select q.payer from batch b join queue q on q.batch_id = b.id
      where b.chain_id = ${chainId} and b.token = ${token} and b.lane = 'high_value'
        and b.state in ('claimed', 'broadcast', 'reorged')
    )`
  return new Set(rows.map(({ id }) => id))
}

/** Reads the batches that are mined but not deep enough yet. */
export async function readMinedBatches(sql: Queryable, chainId: number): Promise<BatchRow[]> {
  return sql<BatchRow[]>`
    select ${batchColumns(sql)} from batch where chain_id = ${chainId} and state = 'mined' order by id`
}

/** Reads the mined batches whose transaction is in the given block. */
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

/** Locks a batch in the given state; null if it has left that state. */
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

/**
 * Closes a batch: its payments return to their previous stages, and its nonce is resolved.
 *
 * @param isEmpty true if it contains no payment any more.
 */
export async function closeBatch(
  sql: Queryable,
  id: bigint,
  result: BatchResult,
  now: Date,
  isEmpty = false,
): Promise<void> {
  if (!isEmpty) await releasePayments(sql, id, now)
  await sql`
    with closed as (
      update batch set state = 'closed', result = ${result}, closed_at = ${now}
      where id = ${id} and state <> 'closed'
    )
    update transaction set resolved_at = ${now} where batch_id = ${id} and resolved_at is null`
}

export async function recordOutcomes(
  sql: Queryable,
  batchId: bigint,
  position: number,
  outcome: { provider: number; fee: number },
): Promise<void> {
  await sql`
    update batch_item set provider_outcome = ${outcome.provider}, fee_outcome = ${outcome.fee}
    where batch_id = ${batchId} and position = ${position}`
}
