import { bothHalves } from '../facts/halves.ts'
import type { Queryable } from '../store/database.ts'

// Only this file determines and changes the stage of a payment. See the diagram in docs/where-is-my-payment.md. A payment either
// is in the queue and has a stage, or has a result.

/** Stages of a payment in the queue (`queue.stage`), explained in packages/ledger/migrations/0001_schema.sql. */
export const stages = ['reserved', 'waiting', 'deferred', 'retrying', 'isolated', 'claimed', 'sent'] as const
export type Stage = (typeof stages)[number]

/** Results of a payment: `payment_result.kind`. */
export const paymentResults = ['spent', 'settled', 'failed', 'voided'] as const
export type PaymentResult = (typeof paymentResults)[number]

/**
 * The first stage of a payment. Times are in Unix milliseconds.
 *
 * - `waiting`: waits for a trigger since `since`; by default since its acceptance
 * - `reserved`: reserved for its seller until `until`
 * - `due`: a caller has waited since `since`; the payments of a submission settle together or not at all
 */
export type FirstStage =
  | { stage: 'waiting'; since?: number }
  | { stage: 'reserved'; until: number }
  | { stage: 'due'; since: number; submission?: string }

/** Returns `stage`, `next_at`, `due_at`, `submission` and `waits_since` of a candidate. */
export function firstPlace(
  first: FirstStage,
): [Stage, number | null, number | null, string | null, number | null] {
  if (first.stage === 'reserved') return ['reserved', first.until, null, null, null]
  if (first.stage === 'due') return ['waiting', null, first.since, first.submission ?? null, null]
  return ['waiting', null, null, null, first.since ?? null]
}

/** Returns the condition that the queue's row `q` is in no batch, so that it can be claimed, or finalized independently of a batch. */
export function isUnbatched(sql: Queryable) {
  return sql`q.stage in ('waiting', 'deferred', 'retrying', 'isolated')`
}

/** Returns whether a payment at this stage is in no batch. The stage is null if the payment has a result. */
export function isUnbatchedStage(stage: Stage | null): boolean {
  return stage !== null && stage !== 'reserved' && !isBatchStage(stage)
}

/** Returns whether a payment at this stage is in a batch. */
export function isBatchStage(stage: Stage | null): boolean {
  return stage === 'claimed' || stage === 'sent'
}

/** Returns the condition that the queue's row `q` is in a batch. */
export function isInBatch(sql: Queryable) {
  return sql`q.stage in ('claimed', 'sent')`
}

/**
 * Returns the condition that a payment can settle without further attempts: its signatures were published, or one of our stored transactions contains
 * it and may still be mined. Most batches close only once their transaction is final, so a closed batch counts only if it was released or lost.
 */
export function mayStillSettle(sql: Queryable, paymentId: ReturnType<typeof sql>) {
  return sql`(
    exists (select from publication where publication.payment_id = ${paymentId})
    or exists (
      select from batch_item i join batch b on b.id = i.batch_id
      where i.payment_id = ${paymentId} and not i.is_dropped
        and (b.state <> 'closed' or b.result in ('released', 'lost'))
        and exists (select from transaction t where t.batch_id = b.id)
    )
  )`
}

/** Returns the condition that the queue's row `row` is visible in views. Reserved payments aren't visible. */
export function isShown(sql: Queryable, row = 'q') {
  return sql`${sql(row)}.stage <> 'reserved'`
}

/** Returns the condition that the transaction of the queue's row `row` may have been sent. */
export function isSent(sql: Queryable, row = 'q') {
  return sql`${sql(row)}.stage = 'sent'`
}

/** Returns the condition that the queue's row `row` is to be sent and never failed. */
export function isFresh(sql: Queryable, row = 'q') {
  return sql`(${sql(row)}.stage <> 'sent' and ${sql(row)}.attempts = 0)`
}

/** Returns the condition that the queue's row `row` is to be sent and failed before. */
export function isRetrying(sql: Queryable, row = 'q') {
  return sql`(${sql(row)}.stage <> 'sent' and ${sql(row)}.attempts > 0)`
}

/** Returns the condition that the queue's row `q` is reserved for its seller until `next_at`. */
export function isReserved(sql: Queryable) {
  return sql`q.stage = 'reserved'`
}

/** Returns the condition that the queue's row `q` settles separately from other payments. */
export function isIsolated(sql: Queryable) {
  return sql`q.stage = 'isolated'`
}

/** Returns the assignments by which larger statements change the stage. Each assignment is an arrow in the diagram. */
export function moves(sql: Queryable) {
  return {
    toWaiting: sql`stage = 'waiting', next_at = null`,
    toClaimed: sql`stage = 'claimed', next_at = null, held_by = null`,
    toIsolated: sql`stage = 'isolated'`,
    /** Applies after a failure. Payments in a batch and isolated payments keep their stage. */
    toRetrying: sql`stage = case when stage in ('waiting', 'deferred') then 'retrying' else stage end`,
    /** Applies after a reorg reverted the only failure of a payment. A payment that isn't waiting for a retry keeps its stage. */
    toUntried: sql`stage = case when attempts = 1 and stage = 'retrying' then 'waiting' else stage end,
      next_at = case when attempts = 1 and stage = 'retrying' then null else next_at end`,
  }
}

/** Returns the condition that the queue's row `q` is deferred until a time that has come. */
export function isDeferredUntil(sql: Queryable, now: Date) {
  return sql`q.stage = 'deferred' and q.next_at <= ${now}`
}

/** Returns the condition that the queue's row `q` is deferred because nothing pays for its gas. */
export function isHeldBack(sql: Queryable) {
  return sql`(q.stage = 'deferred' and q.held_by is not null)`
}

/** Returns the condition that the queue's row `q` was held back because of gas cost and hasn't been claimed since. Its stage may have changed. */
export function waitsForGas(sql: Queryable) {
  return sql`q.held_by is not null`
}

/** Returns the condition that a caller waits for an answer about the queue's row `q`. */
export function isAwaited(sql: Queryable) {
  return sql`q.due_at is not null`
}

/**
 * Returns the condition that the queue's row `q` counts as an open payment of its caller: it is in no batch, and either it is reserved or a caller
 * waits for it.
 */
export function isOpenOfCaller(sql: Queryable) {
  return sql`((q.stage = 'reserved' or q.due_at is not null) and q.batch_id is null)`
}

/** Returns the condition that the triggers count the queue's row `q`: it's at the stage `waiting`, and no caller waits for it. */
export function isWaiting(sql: Queryable) {
  return sql`q.stage = 'waiting' and q.due_at is null`
}

/** Returns the condition that a caller of /settle or /submit waits for the queue's row `q`. */
export function isDue(sql: Queryable) {
  return sql`q.stage = 'waiting' and q.due_at is not null`
}

/** Returns the condition that the queue's row `q` failed before and its retry is due. */
export function isRetryDue(sql: Queryable, now: Date) {
  return sql`q.stage = 'retrying' and q.next_at <= ${now}`
}

/**
 * Returns everything that callers learn about the state of the payment `p`: a lateral subquery of exactly one row, called
 * `payment_position`.
 *
 * - `status`: the `payment_status` of the API; null for a payment that is only reserved, since it isn't shown
 * - `stage`: of the queue; null if the payment has a result
 * - `attempts`, `next_attempt_at`, `failure_code`, `failed_at`, `voided_at`
 * - `held_by`: why it waits for cheaper gas: `gas_price` if gas is too expensive on the whole network, otherwise one of {@link holdReasons}; null if
 *   it doesn't wait
 * - the columns of {@link bothHalves}
 *
 * The record of the chain takes precedence over our own tables, because money that moved can't be undone.
 *
 * @param now decides whether an unused authorization has expired.
 */
export function paymentPosition(sql: Queryable, now: Date) {
  const isAllSettled = sql`half.provider = 'settled' and coalesce(half.fee, 'settled') = 'settled'`
  const place = {
    stage: sql`q.stage`,
    kind: sql`o.kind`,
    attempts: sql`coalesce(q.attempts, o.attempts)`,
    validBefore: sql`p.valid_before`,
    isAllSettled,
    hasSettled: sql`half.provider = 'settled' or half.fee = 'settled'`,
  }
  return sql`(
    select half.*, q.stage, coalesce(q.attempts, o.attempts, 0) as attempts,
      case when q.attempts > 0 then q.next_at end as next_attempt_at,
      case when o.kind = 'failed' and not (${isAllSettled}) then o.ended_at end as failed_at,
      case when o.kind = 'voided' then o.ended_at end as voided_at,
      case
        when (${isAllSettled}) or q.stage in ('reserved', 'claimed', 'sent') then null
        when p.valid_before <= ${Math.floor(now.getTime() / 1000)} then null
        when q.payment_id is not null and exists (
          select from settlement_hold hold where hold.chain_id = p.chain_id and hold.held_until > ${now}
        ) then 'gas_price'
        else q.held_by
      end as held_by,
      case
        when ${isAllSettled} then null
        when q.attempts > 0 then (
          select f.code from settlement_failure f where f.payment_id = p.id and f.attempt = q.attempts
        ) else o.code
      end as failure_code,
      ${statusOf(sql, place, now)} as status
    from ${bothHalves(sql)} half
    left join queue q on q.payment_id = p.id
    left join payment_result o on o.payment_id = p.id
  )`
}

type Fragment = ReturnType<typeof bothHalves>

/** Columns and conditions from which {@link statusOf} derives a payment's status. */
type Place = {
  /** The stage in the queue's row; null if the payment has a result. */
  stage: Fragment
  /** The kind of the payment's result; null if the payment is in the queue. */
  kind: Fragment
  attempts: Fragment
  /** Unix seconds. */
  validBefore: Fragment
  /** Whether everything that was signed has settled. */
  isAllSettled: Fragment
  /** Whether at least one half has settled. */
  hasSettled: Fragment
}

/**
 * Returns the `payment_status` of the API; null for a payment that is only reserved. It contains the only definition of `failed`, so lists
 * and sums count the same payments as failed.
 */
export function statusOf(sql: Queryable, place: Place, now: Date) {
  const { stage, kind, attempts, validBefore, isAllSettled, hasSettled } = place
  return sql`case
    when ${stage} = 'reserved' then null
    when ${isAllSettled} then 'settled'
    when ${stage} = 'sent' then 'settling'
    when ${hasSettled} then 'partially_settled'
    when ${kind} = 'voided' then 'voided'
    when ${kind} = 'failed' or ${hasRunOut(sql, validBefore, now)} then 'failed'
    when ${attempts} > 0 then 'retrying'
    else 'verified'
  end`
}

/** Returns the condition that an authorization with this `validBefore` can no longer settle. */
export function hasRunOut(sql: Queryable, validBefore: Fragment, now: Date) {
  return sql`${validBefore} <= ${Math.floor(now.getTime() / 1000)}`
}

/** Defers payments, or their retries, until `until`, without counting an attempt, because something must be looked up first. */
export async function deferPayments(
  sql: Queryable,
  paymentIds: readonly string[],
  until: Date,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update queue q set next_at = ${until}, stage = case when q.stage = 'waiting' then 'deferred' else q.stage end
    where q.payment_id = any(${[...paymentIds]}::text[]) and ${isUnbatched(sql)}`
}

/** Reasons why a payment waits for cheaper gas: `queue.held_by`. */
export const holdReasons = ['gas_cost', 'gas_budget', 'gas_allowance'] as const
export type HoldReason = (typeof holdReasons)[number]

/**
 * Defers payments because nothing pays for their gas now. Each payment keeps its reason until it is claimed. The payments are checked again at
 * `until`, or as soon as they are urgent.
 */
export async function holdPayments(
  sql: Queryable,
  held: readonly { paymentId: string; reason: HoldReason }[],
  { until, now }: { until: Date; now: Date },
): Promise<void> {
  if (held.length === 0) return
  await sql`
    update queue q set held_by = held.reason, stage = case when q.stage = 'waiting' then 'deferred' else q.stage end,
      next_at = case when to_timestamp(q.urgent_at) > ${now} then least(${until}, to_timestamp(q.urgent_at)) else ${until} end
    from unnest(${held.map((one) => one.paymentId)}::text[], ${held.map((one) => one.reason)}::text[])
      as held (payment_id, reason)
    where q.payment_id = held.payment_id and ${isUnbatched(sql)}`
}

const returnedAtOnce = 1_000

/** Returns deferred payments to waiting, because the look-up they waited for is done. */
export async function wakeDeferred(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  await sql`
    update queue set ${moves(sql).toWaiting}
    where payment_id = any(${[...paymentIds]}::text[]) and stage = 'deferred'`
}

/** Returns deferred payments to waiting once their time has come. */
export async function returnDeferred(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: string },
  now: Date,
): Promise<void> {
  await sql`
    update queue set stage = 'waiting', next_at = null
    where payment_id in (
      select q.payment_id from queue q
      where ${isDeferredUntil(sql, now)}
        and q.group_id in (select id from queue_group where chain_id = ${chainId} and token = ${token})
      limit ${returnedAtOnce}
      for update skip locked
    ) and stage = 'deferred'`
}

/**
 * Isolates payments: they settle separately from others, each with its full gas limit. Payments in a batch, and payments of submissions,
 * keep their stage.
 *
 * @param from also move payments in this batch, which is about to be closed.
 */
export async function isolatePayments(
  sql: Queryable,
  paymentIds: readonly string[],
  from?: bigint,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update queue q set stage = 'isolated', batch_id = null
    where q.payment_id = any(${[...paymentIds]}::text[]) and q.submission is null
      and (${isUnbatched(sql)} ${from === undefined ? sql`` : sql`or q.batch_id = ${from}`})`
}

/**
 * Ends the isolation of payments: they wait, or are retried if they failed before. Payments in a batch keep their stage.
 *
 * @returns the payments that were returned.
 */
export async function endIsolation(
  sql: Queryable,
  paymentIds: readonly string[],
  now: Date,
): Promise<string[]> {
  if (paymentIds.length === 0) return []
  const rows = await sql<{ id: string }[]>`
    update queue q set stage = case when q.attempts > 0 then 'retrying' else 'waiting' end,
      next_at = case when q.attempts > 0 then coalesce(q.next_at, ${now}::timestamptz) end
    where q.payment_id = any(${[...paymentIds]}::text[]) and ${isIsolated(sql)}
    returning q.payment_id as id`
  return rows.map(({ id }) => id)
}

/** Marks a batch's payments as sent, because its transaction is stored and may be sent from now on. */
export async function markSent(sql: Queryable, batchId: bigint): Promise<void> {
  await sql`update queue set stage = 'sent' where batch_id = ${batchId} and stage = 'claimed'`
}

/**
 * Returns a batch's payments to their previous stage: all of them, or only those at `positions`.
 *
 * Callers continue to wait for their payments. The payments of a submission continue separately.
 */
export async function releasePayments(
  sql: Queryable,
  batchId: bigint,
  now: Date,
  positions?: readonly number[],
): Promise<string[]> {
  if (positions?.length === 0) return []
  const rows = await sql<{ id: string }[]>`
    update queue q set batch_id = null, submission = null,
      due_at = case when q.submission is null or own.is_facilitated then q.due_at end,
      stage = case when own.is_isolated then 'isolated' when q.attempts > 0 then 'retrying' else 'waiting' end,
      next_at = case when own.is_isolated or q.attempts > 0 then coalesce(q.next_at, ${now}::timestamptz) end
    from (
      select held.payment_id, b.lane = 'isolated' or payer.mined_failures > 0 as is_isolated,
        p.source = 'facilitator' as is_facilitated
      from queue held
      join batch b on b.id = held.batch_id
      join payment p on p.id = held.payment_id
      join payer on payer.chain_id = b.chain_id and payer.token = b.token and payer.address = held.payer
      where held.batch_id = ${batchId}
        ${
          positions === undefined
            ? sql``
            : sql`and held.payment_id in (
                select payment_id from batch_item where batch_id = ${batchId} and position in ${sql(positions)}
              )`
        }
    ) own
    where q.payment_id = own.payment_id
    returning q.payment_id as id`
  return rows.map(({ id }) => id)
}

/** A payment's new result. */
export type Ending = {
  paymentId: string
  kind: PaymentResult
  /** The code of the reason why it failed, or why its fee is missing; null keeps the stored code. */
  code: string | null
  /** True if no part of it can move any more. It then counts in its provider's sums. */
  isFinal: boolean
}

/**
 * Writes the results of payments that are in no batch, or makes their results final, in one statement. It skips payments that were claimed
 * or became final in the meantime.
 *
 * @param from also include payments in this batch, which is about to be closed.
 * @returns the payments whose results were written.
 */
export async function endPayments(
  sql: Queryable,
  endings: readonly Ending[],
  now: Date,
  from?: bigint,
): Promise<string[]> {
  if (endings.length === 0) return []
  const rows = await sql<{ id: string }[]>`
    with given as materialized (
      select * from json_to_recordset(${JSON.stringify(
        endings.map(({ paymentId, kind, code, isFinal }) => ({
          id: paymentId,
          kind,
          code,
          is_final: isFinal,
        })),
      )}::text::json) as d (id text, kind text, code text, is_final boolean)
    ), gone as (
      delete from queue q using given
      where q.payment_id = given.id
        and (${isUnbatched(sql)} ${from === undefined ? sql`` : sql`or q.batch_id = ${from}`})
      returning q.payment_id, q.attempts
    ), known as materialized (
      -- Lock the rows, so that a payment that is being reopened isn't written again.
      select o.payment_id, o.code from payment_result o
      where o.payment_id in (select id from given) and o.final_at is null
      order by o.payment_id for update
    )
    insert into payment_result as o (payment_id, kind, code, ended_at, final_at, attempts, arrived, settlement_seconds, late_at,
      provider_id, payer, chain_id, accepted_at, valid_before, is_partial)
    select p.id, d.kind, coalesce(d.code, known.code), ${now}, case when d.is_final then ${now}::timestamptz end,
      coalesce(gone.attempts, 0), case when d.is_final then seen.arrived end,
      case when d.is_final and p.source in ('gateway', 'tab') and seen.arrived & 1 = 1
        then greatest(0, seen.last_time - extract(epoch from p.accepted_at)) end,
      case when d.is_final and late.at > p.accepted_at + interval '2 days' then late.at end,
      p.provider_id, p.payer, p.chain_id, p.accepted_at, p.valid_before,
      d.is_final and seen.arrived in (1, 2) and p.fee_amount > 0
    from given d
    join payment p on p.id = d.id
    left join gone on gone.payment_id = d.id
    left join known on known.payment_id = d.id
    cross join lateral ${arrived(sql)} seen
    -- Sales on a tab that a credit paid for arrive when the tab ends, even if nothing of the tab moves.
    cross join lateral (
      select coalesce(to_timestamp(seen.last_time), case when p.source = 'tab' then ${now}::timestamptz end) as at
    ) late
    where gone.payment_id is not null or known.payment_id is not null
    order by p.id
    on conflict (payment_id) do update set kind = excluded.kind, code = excluded.code,
      ended_at = case when o.kind = excluded.kind then o.ended_at else excluded.ended_at end,
      final_at = excluded.final_at, arrived = excluded.arrived, settlement_seconds = excluded.settlement_seconds,
      late_at = excluded.late_at, is_partial = excluded.is_partial
      where o.final_at is null
    returning o.payment_id as id`
  return rows.map(({ id }) => id)
}

/** Returns the halves of the payment `p` that have arrived, as the bits of `payment_result.arrived`, and when the last half arrived. */
function arrived(sql: Queryable) {
  return sql`(
    select coalesce(sum(case
        when e.state <> 'settled' then 0
        when p.splitter is null then 1 << e.half
        else 3
      end), 0)::int as arrived, max(b.time) filter (where e.state = 'settled') as last_time
    from authorization_event e join recorded_block b on b.id = e.block_id
    where e.payment_id = p.id
  )`
}

/**
 * Reopens payments: deletes their results and puts them back into the queue.
 *
 * @param attempts `forgotten`: resets the attempts, so that all retries are available again.
 * @returns the reopened payments.
 */
export async function reopenPayments(
  sql: Queryable,
  paymentIds: readonly string[],
  attempts: 'kept' | 'forgotten' = 'kept',
): Promise<string[]> {
  if (paymentIds.length === 0) return []
  const isTriedAnew = attempts === 'forgotten' ? sql`true` : sql`o.attempts = 0 or failure.failed_at is null`
  const rows = await sql<{ id: string }[]>`
    with taken as (
      delete from payment_result where payment_id = any(${[...paymentIds]}::text[]) returning payment_id, attempts
    )
    insert into queue (payment_id, group_id, stage, next_at, attempts, first_failed_at, provider_id, payer, payee,
      provider_amount, fee_amount, accepted_at, valid_before, is_tab)
    select p.id, g.id, case when ${isTriedAnew} then 'waiting' else 'retrying' end,
      case when ${isTriedAnew} then null else now() end,
      case when ${isTriedAnew} then 0 else o.attempts end,
      case when ${isTriedAnew} then null else failure.failed_at end,
      p.provider_id, p.payer, p.payee, p.provider_amount, p.fee_amount, coalesce(tab.opened_at, p.accepted_at), p.valid_before,
      p.source = 'tab'
    from taken o
    join payment p on p.id = o.payment_id
    left join tab_payment tab on tab.payment_id = p.id
    join queue_group g on g.chain_id = p.chain_id and g.token = p.token and g.fee_recipient = p.fee_recipient
    left join lateral (
      select min(failed_at) as failed_at from settlement_failure where payment_id = p.id
    ) failure on true
    returning payment_id as id`
  return rows.map(({ id }) => id)
}
