import { bothHalves } from '../facts/halves.ts'
import type { Queryable } from '../store/database.ts'

// The only place that says where a payment stands, and that moves it. docs/where-is-my-payment.md has the picture. A payment
// is in the queue, with a stage, or has an outcome; never both.

/** Where a payment stands while it isn't over: `queue.stage`, which packages/ledger/migrations/0001_schema.sql explains. */
export const stages = [
  'reserved',
  'waiting',
  'deferred',
  'retrying',
  'quarantined',
  'claimed',
  'sent',
] as const
export type Stage = (typeof stages)[number]

/** How a payment ended: `outcome.kind`. */
export const outcomeKinds = ['spent', 'settled', 'failed', 'voided'] as const
export type OutcomeKind = (typeof outcomeKinds)[number]

/**
 * Where a payment stands first. Times in Unix milliseconds.
 *
 * - `waiting`: for a trigger, since then; by default since it was accepted
 * - `reserved`: for its seller, until then
 * - `due`: a caller has waited since then; the payments of a submission settle together or not at all
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

/** Whether the queue's row `q` is in no batch, so it can be claimed, or ended without asking a batch. */
export function isLoose(sql: Queryable) {
  return sql`q.stage in ('waiting', 'deferred', 'retrying', 'quarantined')`
}

/** Whether a payment at this stage is in no batch; null: it is over. */
export function isLooseStage(stage: Stage | null): boolean {
  return stage !== null && stage !== 'reserved' && !isBatchStage(stage)
}

/** Whether a payment at this stage is in a batch. */
export function isBatchStage(stage: Stage | null): boolean {
  return stage === 'claimed' || stage === 'sent'
}

/** Whether the queue's row `q` is in a batch. */
export function isInBatch(sql: Queryable) {
  return sql`q.stage in ('claimed', 'sent')`
}

/**
 * Whether a payment can settle though we don't try it: a transaction of ours carries it and its nonce isn't over for good, or
 * its signatures were published. A batch closes once its transaction is final, unless another keeper gave it up.
 */
export function mayStillSettle(sql: Queryable, paymentId: ReturnType<typeof sql>) {
  return sql`(
    exists (select from publication where publication.payment_id = ${paymentId})
    or exists (
      select from batch_item i join batch b on b.id = i.batch_id
      where i.payment_id = ${paymentId} and not i.is_dropped
        and (b.state <> 'closed' or b.outcome in ('released', 'lost'))
        and exists (select from transaction t where t.batch_id = b.id)
    )
  )`
}

/** Whether anybody is shown the queue's row `row`: reserved payments aren't. */
export function isShown(sql: Queryable, row = 'q') {
  return sql`${sql(row)}.stage <> 'reserved'`
}

/** Whether the transaction of the queue's row `row` may be out. */
export function isSent(sql: Queryable, row = 'q') {
  return sql`${sql(row)}.stage = 'sent'`
}

/** Whether the queue's row `row` is to be sent and never failed. */
export function isFresh(sql: Queryable, row = 'q') {
  return sql`(${sql(row)}.stage <> 'sent' and ${sql(row)}.attempts = 0)`
}

/** Whether the queue's row `row` is to be sent and failed before. */
export function isRetrying(sql: Queryable, row = 'q') {
  return sql`(${sql(row)}.stage <> 'sent' and ${sql(row)}.attempts > 0)`
}

/** Whether the queue's row `q` is kept for its seller until `next_at`. */
export function isReserved(sql: Queryable) {
  return sql`q.stage = 'reserved'`
}

/** Whether the queue's row `q` is settled apart from the others. */
export function isApart(sql: Queryable) {
  return sql`q.stage = 'quarantined'`
}

/** What an update of the queue sets when a larger statement changes the stage: each is an arrow of the picture. */
export function moves(sql: Queryable) {
  return {
    toWaiting: sql`stage = 'waiting', next_at = null`,
    toClaimed: sql`stage = 'claimed', next_at = null, held_by = null`,
    toQuarantined: sql`stage = 'quarantined'`,
    /** After a failure. A payment in a batch, or one that is apart, stays where it is. */
    toRetrying: sql`stage = case when stage in ('waiting', 'deferred') then 'retrying' else stage end`,
    /** After its only failure was taken back. A payment that isn't waiting for a retry stays where it is. */
    toUntried: sql`stage = case when attempts = 1 and stage = 'retrying' then 'waiting' else stage end,
      next_at = case when attempts = 1 and stage = 'retrying' then null else next_at end`,
  }
}

/** Whether the queue's row `q` is deferred because nothing pays for its gas. */
export function isHeldBack(sql: Queryable) {
  return sql`(q.stage = 'deferred' and q.held_by is not null)`
}

/** Whether the queue's row `q` waits for gas, wherever it stands. */
export function waitsForGas(sql: Queryable) {
  return sql`q.held_by is not null`
}

/** Whether somebody waits for an answer about the queue's row `q`. */
export function isAwaited(sql: Queryable) {
  return sql`q.due_at is not null`
}

/** Whether a caller of the facilitator has the queue's row `q` open: it is reserved, or awaited and in no batch. */
export function isOpenOfCaller(sql: Queryable) {
  return sql`((q.stage = 'reserved' or q.due_at is not null) and q.batch_id is null)`
}

/** Whether the triggers count the queue's row `q`: nobody waits for it, and it isn't kept apart. */
export function isWaiting(sql: Queryable) {
  return sql`q.stage = 'waiting' and q.due_at is null`
}

/** Whether a caller of /settle or /submit waits for the queue's row `q`. */
export function isDue(sql: Queryable) {
  return sql`q.stage = 'waiting' and q.due_at is not null`
}

/** Whether the queue's row `q` failed before and its retry is due. */
export function isRetryDue(sql: Queryable, now: Date) {
  return sql`q.stage = 'retrying' and q.next_at <= ${now}`
}

/**
 * All that anybody is told of where the payment `p` stands: a lateral subquery of just one row, called `standing`.
 *
 * - `status`: the `payment_status` of the API; null for a payment that is only reserved, since it isn't shown
 * - `stage`: of the queue; null: the payment is over
 * - `attempts`, `next_attempt_at`, `failure_code`, `failed_at`, `voided_at`
 * - `held_by`: why it waits for gas, `gas_price` if gas is too dear on its whole network; null: it doesn't wait
 * - the columns of {@link bothHalves}
 *
 * What the chain shows comes first, because money that moved has moved.
 *
 * @param now decides whether an unused authorization has expired.
 */
export function standingOf(sql: Queryable, now: Date) {
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
    left join outcome o on o.payment_id = p.id
  )`
}

type Fragment = ReturnType<typeof bothHalves>

/** Columns and conditions by which {@link statusOf} says where a payment stands. */
type Place = {
  /** Of the queue's row; null: it is over. */
  stage: Fragment
  /** Of its outcome; null: it is in the queue. */
  kind: Fragment
  attempts: Fragment
  /** Unix seconds. */
  validBefore: Fragment
  /** Whether all that was signed has settled. */
  isAllSettled: Fragment
  /** Whether a half has settled. */
  hasSettled: Fragment
}

/**
 * The `payment_status` of the API; null for a payment that is only reserved. It is the only definition of `failed`, so lists and sums
 * count the same payments as failed.
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

/** Whether no authorization that is valid before then can settle any more. */
export function hasRunOut(sql: Queryable, validBefore: Fragment, now: Date) {
  return sql`${validBefore} <= ${Math.floor(now.getTime() / 1000)}`
}

/** Defers payments, or their retry, until then, without counting an attempt: something must be found out first. */
export async function deferPayments(
  sql: Queryable,
  paymentIds: readonly string[],
  until: Date,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update queue q set next_at = ${until}, stage = case when q.stage = 'waiting' then 'deferred' else q.stage end
    where q.payment_id = any(${[...paymentIds]}::text[]) and ${isLoose(sql)}`
}

/** Why a payment waits for cheaper gas: `queue.held_by`. */
export const holdReasons = ['gas_cost', 'gas_budget', 'gas_allowance'] as const
export type HoldReason = (typeof holdReasons)[number]

/**
 * Defers payments because nothing pays for their gas now. The reason stays with each until it is claimed. They are looked
 * at again then, or as soon as they are urgent.
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
    where q.payment_id = held.payment_id and ${isLoose(sql)}`
}

const returnedAtOnce = 1_000

/** Lets deferred payments wait again, because what had to be found out is known. */
export async function wakeDeferred(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  await sql`
    update queue set ${moves(sql).toWaiting}
    where payment_id = any(${[...paymentIds]}::text[]) and stage = 'deferred'`
}

/** Lets deferred payments wait again once their time has come. */
export async function returnDeferred(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: string },
  now: Date,
): Promise<void> {
  await sql`
    update queue set stage = 'waiting', next_at = null
    where payment_id in (
      select q.payment_id from queue q
      where q.stage = 'deferred' and q.next_at <= ${now}
        and q.group_id in (select id from queue_group where chain_id = ${chainId} and token = ${token})
      limit ${returnedAtOnce}
      for update skip locked
    ) and stage = 'deferred'`
}

/**
 * Keeps payments apart from the others: they are settled with full gas for each. Payments in a batch, and those that were
 * submitted with others, stay where they are.
 *
 * @param from also move payments in this batch, which is about to be closed.
 */
export async function quarantinePayments(
  sql: Queryable,
  paymentIds: readonly string[],
  from?: bigint,
): Promise<void> {
  if (paymentIds.length === 0) return
  await sql`
    update queue q set stage = 'quarantined', batch_id = null
    where q.payment_id = any(${[...paymentIds]}::text[]) and q.submission is null
      and (${isLoose(sql)} ${from === undefined ? sql`` : sql`or q.batch_id = ${from}`})`
}

/**
 * Returns quarantined payments to the others: to wait, or to be retried if they failed before. Payments in a batch stay where they are.
 *
 * @returns the payments that were returned.
 */
export async function endQuarantine(
  sql: Queryable,
  paymentIds: readonly string[],
  now: Date,
): Promise<string[]> {
  if (paymentIds.length === 0) return []
  const rows = await sql<{ id: string }[]>`
    update queue q set stage = case when q.attempts > 0 then 'retrying' else 'waiting' end,
      next_at = case when q.attempts > 0 then coalesce(q.next_at, ${now}::timestamptz) end
    where q.payment_id = any(${[...paymentIds]}::text[]) and ${isApart(sql)}
    returning q.payment_id as id`
  return rows.map(({ id }) => id)
}

/** Marks payments as sent: their batch's transaction is stored, and may be out from now on. */
export async function markSent(sql: Queryable, batchId: bigint): Promise<void> {
  await sql`update queue set stage = 'sent' where batch_id = ${batchId} and stage = 'claimed'`
}

/**
 * Lets payments leave a batch for the stage before it: all of it, or those at some positions.
 *
 * A caller goes on waiting for its payment; the payments of a submission go on one by one.
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
      stage = case when own.is_apart then 'quarantined' when q.attempts > 0 then 'retrying' else 'waiting' end,
      next_at = case when own.is_apart or q.attempts > 0 then coalesce(q.next_at, ${now}::timestamptz) end
    from (
      select held.payment_id, b.lane = 'quarantined' or payer.mined_failures > 0 as is_apart,
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

/** How a payment ends, or how its end changes. */
export type Ending = {
  paymentId: string
  kind: OutcomeKind
  /** Why it failed, or why its fee is missing; null keeps the known reason. */
  code: string | null
  /** Nothing of it can move any more. Then it counts in its provider's sums. */
  isFinal: boolean
}

/**
 * Ends payments that are in no batch, or makes their end final, in one statement. Leaves out those that were claimed or
 * became final meanwhile.
 *
 * @param from also end payments in this batch, which is about to be closed.
 * @returns the payments that ended.
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
        and (${isLoose(sql)} ${from === undefined ? sql`` : sql`or q.batch_id = ${from}`})
      returning q.payment_id, q.attempts
    ), known as materialized (
      -- Locked: one that is reopened meanwhile isn't written anew.
      select o.payment_id, o.code from outcome o
      where o.payment_id in (select id from given) and o.final_at is null
      order by o.payment_id for update
    )
    insert into outcome as o (payment_id, kind, code, ended_at, final_at, attempts, arrived, settlement_seconds,
      provider_id, payer, chain_id, accepted_at, valid_before, is_partial)
    select p.id, d.kind, coalesce(d.code, known.code), ${now}, case when d.is_final then ${now}::timestamptz end,
      coalesce(gone.attempts, 0), case when d.is_final then seen.arrived end,
      case when d.is_final and p.source in ('gateway', 'tab') and seen.arrived & 1 = 1
        then greatest(0, seen.last_time - extract(epoch from p.accepted_at)) end,
      p.provider_id, p.payer, p.chain_id, p.accepted_at, p.valid_before,
      d.is_final and seen.arrived in (1, 2) and p.fee_amount > 0
    from given d
    join payment p on p.id = d.id
    left join gone on gone.payment_id = d.id
    left join known on known.payment_id = d.id
    cross join lateral ${arrived(sql)} seen
    where gone.payment_id is not null or known.payment_id is not null
    order by p.id
    on conflict (payment_id) do update set kind = excluded.kind, code = excluded.code,
      ended_at = case when o.kind = excluded.kind then o.ended_at else excluded.ended_at end,
      final_at = excluded.final_at, arrived = excluded.arrived, settlement_seconds = excluded.settlement_seconds,
      is_partial = excluded.is_partial
      where o.final_at is null
    returning o.payment_id as id`
  return rows.map(({ id }) => id)
}

/** Which halves of the payment `p` have arrived, as the bits of `outcome.arrived`, and when the last one did. */
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
 * Takes ends back, so that the payments are in the queue again.
 *
 * @param attempts `forgotten`: all retries begin anew.
 * @returns the payments whose end was taken back.
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
      delete from outcome where payment_id = any(${[...paymentIds]}::text[]) returning payment_id, attempts
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
