import type { Address, Hex } from 'viem'
import { type HalfState, halves, isAllSettled } from '../facts/halves.ts'
import { type Ending, endPayments, isUnbatched } from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'
import type { ChainFacts, PaymentFacts } from './decideFinalization.ts'

/** A payment that is in no batch and isn't finalized, and its nonces: the provider's, then the fee's. */
export type OpenPayment = PaymentFacts & { paymentId: string; payer: Address; nonces: [Hex, Hex | null] }

/** The blocks and payments of a network to check. */
export type Finalizing = {
  /** Blocks of the record that still need a check. Each block is checked twice: before and after it becomes final ({@link markLooked}). */
  blockIds: readonly bigint[]
  payments: OpenPayment[]
}

/**
 * Reads the payments that may need a next step: one of their halves was used or cancelled in a block that still needs a check, no part of them is
 * left to settle, or they have expired.
 *
 * @param limit maximum number of expired payments in the queue, and of expired payments outside the queue. At most a fifth as many blocks are read.
 * @param except payments that recently could not be finalized, and are retried later.
 * @param chain the last final block, and the time of the recorded head: all blocks before that time have been read, so payments that expired before
 * it can no longer settle.
 */
export async function readPaymentsToFinalize(
  sql: Queryable,
  chainId: number,
  { safeBlock, blockTime }: ChainFacts,
  limit: number,
  except: readonly string[] = [],
): Promise<Finalizing> {
  const blocks = await sql<{ id: bigint }[]>`
    select b.id from recorded_block b
    where b.chain_id = ${chainId} and b.looked < 2 and (b.looked = 0 or b.number <= ${safeBlock})
      and ${touchesNone(sql, except)}
    order by b.number limit ${Math.ceil(limit / 5)}`
  const blockIds = blocks.map(({ id }) => id)
  const isNotLookedUp = (id: string) =>
    sql`${sql(id)} <> all(${[...except]}::text[]) and not exists (select from lookup where payment_id = ${sql(id)})`
  const payments = await readOpenPayments(
    sql,
    sql`
      select payment_id as id from authorization_event where block_id = any(${blockIds.map(String)}::bigint[])
      union
      select payment_id from payment_result
      where chain_id = ${chainId} and kind = 'spent' and payment_id <> all(${[...except]}::text[])
      union
      (select q.payment_id from queue q
      where q.group_id in (select id from queue_group where chain_id = ${chainId}) and ${isUnbatched(sql)}
        and q.urgent_at <= ${blockTime} and q.valid_before <= ${blockTime} and ${isNotLookedUp('q.payment_id')}
      order by q.urgent_at limit ${limit})
      union
      (select o.payment_id from payment_result o
      where o.chain_id = ${chainId} and o.final_at is null and o.valid_before <= ${blockTime}
        and ${isNotLookedUp('o.payment_id')}
      order by o.valid_before limit ${limit})`,
  )
  return { blockIds, payments }
}

/**
 * Locks the rows of payments in the queue, or of their results, until the transaction ends.
 *
 * @returns the payments whose rows were locked. Those that another transaction has locked are left out.
 */
export async function lockUnlessHeld(tx: Queryable, paymentIds: readonly string[]): Promise<Set<string>> {
  const ids = [...paymentIds]
  const queued = await tx<{ id: string }[]>`
    select payment_id as id from queue where payment_id = any(${ids}::text[])
    order by payment_id for update skip locked`
  const ended = await tx<{ id: string }[]>`
    select payment_id as id from payment_result where payment_id = any(${ids}::text[])
    order by payment_id for update skip locked`
  return new Set([...queued, ...ended].map(({ id }) => id))
}

/** Marks blocks as checked, except those that touch a payment that could not be finalized. */
export async function markLooked(
  sql: Queryable,
  blockIds: readonly bigint[],
  safeBlock: bigint,
  failed: readonly string[] = [],
): Promise<void> {
  if (blockIds.length === 0) return
  await sql`
    update recorded_block b set looked = case when b.number <= ${safeBlock} then 2 else 1 end
    where b.id = any(${blockIds.map(String)}::bigint[]) and ${touchesNone(sql, failed)}`
}

/** Returns the condition that the block `b` contains no event of these payments. */
function touchesNone(sql: Queryable, paymentIds: readonly string[]) {
  return sql`not exists (
    select from authorization_event e where e.block_id = b.id and e.payment_id = any(${[...paymentIds]}::text[])
  )`
}

/** Reads the given payments in the same form as {@link readPaymentsToFinalize}. */
export async function readChosenPayments(
  sql: Queryable,
  paymentIds: readonly string[],
): Promise<OpenPayment[]> {
  return readOpenPayments(sql, sql`select unnest(${[...paymentIds]}::text[]) as id`)
}

type OpenPaymentRow = Omit<OpenPayment, 'provider' | 'fee' | 'nonces'> & {
  providerState: HalfState
  providerUntil: bigint
  providerNonce: Hex
  feeState: HalfState | null
  feeUntil: bigint | null
  feeNonce: Hex | null
}

async function readOpenPayments(sql: Queryable, candidates: ReturnType<typeof sql>): Promise<OpenPayment[]> {
  const rows = await sql<OpenPaymentRow[]>`
    select p.id as "paymentId", p.payer, o.kind as ended, half.*,
      case when q.attempts > 0 then (
        select f.code from settlement_failure f where f.payment_id = p.id and f.attempt = q.attempts
      ) else o.code end as "failureCode"
    from (${candidates}) candidate
    join payment p on p.id = candidate.id
    left join queue q on q.payment_id = p.id
    left join payment_result o on o.payment_id = p.id
    cross join lateral (
      select max(h.block_number) as "lastBlock",
        max(h.state) filter (where h.half = 0) as "providerState", max(h.state) filter (where h.half = 1) as "feeState",
        max(h.valid_before) filter (where h.half = 0) as "providerUntil",
        max(h.valid_before) filter (where h.half = 1) as "feeUntil",
        max(h.nonce) filter (where h.half = 0) as "providerNonce", max(h.nonce) filter (where h.half = 1) as "feeNonce"
      from ${halves(sql)} h where h.payment_id = p.id
    ) half
    where ${isUnbatched(sql)} or o.final_at is null and o.payment_id is not null`
  return rows.map(
    ({ providerState, providerUntil, providerNonce, feeState, feeUntil, feeNonce, ...payment }) => ({
      ...payment,
      provider: { state: providerState, validBefore: providerUntil },
      fee: feeState === null || feeUntil === null ? null : { state: feeState, validBefore: feeUntil },
      nonces: [providerNonce, feeNonce],
    }),
  )
}

/** Stores results, stops look-ups for these payments, and deletes the signatures of voided payments that can't move any more. */
export async function writeEndings(sql: Queryable, endings: readonly Ending[], now: Date): Promise<void> {
  const ended = await endPayments(sql, endings, now)
  if (ended.length === 0) return
  const written = new Set(ended)
  const wiped = endings.flatMap(({ paymentId, kind, isFinal }) =>
    kind === 'voided' && isFinal && written.has(paymentId) ? paymentId : [],
  )
  await sql`delete from lookup where payment_id = any(${ended}::text[])`
  if (wiped.length > 0) await sql`delete from presentation where payment_id = any(${wiped}::text[])`
}

/**
 * Finalizes the payments that one of our batches settled, before the batch is closed. If a reorg reverted a half that someone else had
 * settled, the payment stays in the queue, because the batch settled only the other half.
 *
 * @returns the number of payments that are still in the batch.
 */
export async function endSettled(sql: Queryable, batchId: bigint, now: Date): Promise<number> {
  const rows = await sql<{ id: string; isSettled: boolean }[]>`
    select q.payment_id as id, ${isAllSettled(sql)} as "isSettled" from queue q where q.batch_id = ${batchId}`
  const settled = rows.flatMap(({ id, isSettled }) => (isSettled ? id : []))
  const endings = settled.map(
    (paymentId): Ending => ({ paymentId, kind: 'settled', code: null, isFinal: true }),
  )
  const ended = await endPayments(sql, endings, now, batchId)
  await sql`delete from lookup where payment_id = any(${settled}::text[])`
  return rows.length - ended.length
}

/**
 * Reads the payments whose results depended on blocks that were dropped by a reorg deeper than our finality. The caller reverts these results.
 *
 * @param blockHashes hashes of the lost blocks; call this before their rows are deleted.
 * @returns `reopened`: payments that return to the queue. `unfinished`: payments that failed for another reason than these blocks; they stay failed,
 * but aren't final any more.
 */
export async function readUndone(
  sql: Queryable,
  chainId: number,
  blockHashes: readonly Hex[],
): Promise<{ reopened: string[]; unfinished: string[] }> {
  if (blockHashes.length === 0) return { reopened: [], unfinished: [] }
  const isExcused = sql`o.kind = 'failed' and o.code in ('authorization_cancelled', 'authorization_used')`
  const rows = await sql<{ id: string; isReopened: boolean }[]>`
    select distinct o.payment_id as id, o.kind <> 'failed' or ${isExcused} as "isReopened"
    from recorded_block b
    join authorization_event e on e.block_id = b.id
    join payment_result o on o.payment_id = e.payment_id
    join payment p on p.id = o.payment_id
    where b.chain_id = ${chainId} and b.hash = any(${[...blockHashes]}::text[]) and o.kind <> 'voided'
      -- Payments of these two sources stay failed, because their callers have already received the failure as their answer.
      and (o.final_at is not null or (${isExcused} and p.source not in ('submission', 'facilitator')))`
  return {
    reopened: rows.flatMap(({ id, isReopened }) => (isReopened ? id : [])),
    unfinished: rows.flatMap(({ id, isReopened }) => (isReopened ? [] : id)),
  }
}

/** Marks permanently failed payments as not final again, because a part of them can move again. */
export async function unfinishPayments(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update payment_result set final_at = null, arrived = null, settlement_seconds = null, late_at = null, is_partial = false
    where payment_id = any(${[...paymentIds]}::text[]) and final_at is not null`
}
