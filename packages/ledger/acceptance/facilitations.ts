import type { Address, Hex } from 'viem'
import { type HalfState, halves, isAuthorization } from '../facts/halves.ts'
import { callerOf } from '../queue/queue.ts'
import {
  isOpenOfCaller,
  isReserved,
  mayStillSettle,
  moves,
  type PaymentResult,
  type Stage,
} from '../queue/stages.ts'
import { isClosed } from '../registry/suspendProvider.ts'
import type { Database, Queryable } from '../store/database.ts'
import type { PaymentSource } from './acceptPayments.ts'

// Payments through the x402 facilitator (keeper/http/facilitator).

/** A payment that the facilitator reserved or settles. */
export type FacilitatedPayment = {
  paymentId: string
  /** The provider whose API key the request contained; null for a request without a key. */
  providerId: string | null
  /** SHA-256 of the presented payment, in hex; null once the presentation is deleted. */
  requestHash: string | null
  paymentIdentifier: string | null
  /** Whether POST /settle hasn't been called yet. */
  isReserved: boolean
}

function columns(sql: Queryable) {
  return sql`f.payment_id as "paymentId", f.provider_id as "providerId", encode(s.request_hash, 'hex') as "requestHash",
    f.payment_identifier as "paymentIdentifier",
    exists (select from queue q where q.payment_id = f.payment_id and ${isReserved(sql)}) as "isReserved"`
}

/**
 * Finds the facilitator's payment that contains an authorization. Returns null if the authorization belongs to a payment from another source, and
 * undefined if it belongs to none.
 */
export async function findFacilitated(
  sql: Queryable,
  { chainId, token, payer, nonce }: { chainId: number; token: Address; payer: Address; nonce: Hex },
): Promise<FacilitatedPayment | null | undefined> {
  const [row] = await sql<FacilitatedPayment[]>`
    select ${columns(sql)}
    from signed_authorization a
    left join presentation s on s.payment_id = a.payment_id
    left join facilitation f on f.payment_id = a.payment_id
    where ${isAuthorization(sql, { chainId, token }, { payer, nonce })}`
  if (row === undefined) return undefined
  return row.paymentId === null ? null : row
}

/** Finds the payment to which a payer gave this identifier. */
export async function findByPaymentIdentifier(
  sql: Queryable,
  payer: Address,
  paymentIdentifier: string,
): Promise<FacilitatedPayment | undefined> {
  const [row] = await sql<FacilitatedPayment[]>`
    select ${columns(sql)} from facilitation f left join presentation s on s.payment_id = f.payment_id
    where f.payer = ${payer} and f.payment_identifier = ${paymentIdentifier}`
  return row
}

/**
 * Makes reserved payments due, including lapsed reservations that still exist.
 *
 * @returns the payments that this call made due.
 */
export async function settleReserved(
  database: Database,
  paymentIds: readonly string[],
  now: Date,
): Promise<Set<string>> {
  const rows = await database<{ id: string }[]>`
    update queue set ${moves(database).toWaiting}, due_at = ${now}
    where payment_id in (
      select payment_id from queue q where payment_id in ${database(paymentIds)} and ${isReserved(database)}
      order by payment_id for update
    )
    returning payment_id as id`
  return new Set(rows.map(({ id }) => id))
}

/** Maximum number of reservations that one statement deletes, so that it stays far below its time limit. */
const releasedAtOnce = 200

/**
 * Deletes lapsed reservations, which releases their authorizations and balance.
 *
 * `payer.accepted_total` still counts the deleted reservations, like voided payments. If they were subtracted, a payer who settles a reserved
 * authorization elsewhere could spend the same money here again, because the limit is cached.
 *
 * @returns the number of deleted reservations.
 */
export async function releaseReservations(sql: Queryable, now: Date, payer?: Address): Promise<number> {
  const isLapsed = sql`${isReserved(sql)} and next_at < ${now} ${payer === undefined ? sql`` : sql`and payer = ${payer}`}`
  // Usually no reservation has lapsed. Check that first, because a deletion runs its trigger even if it deletes nothing.
  const found = await sql`select from queue q where ${isLapsed} limit 1`
  if (found.length === 0) return 0
  let released = 0
  for (;;) {
    const { count } = await sql`
      delete from payment where id in (
        select payment_id from queue q where ${isLapsed}
        order by next_at, payment_id limit ${releasedAtOnce} for update skip locked
      )`
    released += count
    if (count < releasedAtOnce) return released
  }
}

/**
 * Reads the number of a caller's reserved or waiting payments, and whether the caller can't sell because it is disabled or suspended by the
 * operator.
 *
 * @param caller a provider, or the paid wallet for callers without a key.
 */
export async function readCaller(
  sql: Queryable,
  caller: string,
): Promise<{ open: number; isDisabled: boolean }> {
  const [row] = await sql<[{ open: number; isDisabled: boolean }]>`
    select (
        select count(*)::int from queue q join facilitation f on f.payment_id = q.payment_id
        where ${callerOf(sql)} = ${caller} and ${isOpenOfCaller(sql)}
      ) as open,
      exists (
        select from provider p where p.id = ${caller} and ${isClosed(sql)}
      ) as "isDisabled"`
  return row
}

/** The progress of a payment's settlement. */
export type SettlementProgress = {
  paymentId: string
  source: PaymentSource
  state: HalfState
  /** State of the platform's half; null if there is none. */
  feeState: HalfState | null
  /** Its stage in the queue; null if it has a result. */
  stage: Stage | null
  /** The submission that it belongs to. */
  submission: Hex | null
  /** Its result; null if it has none yet. */
  ended: PaymentResult | null
  /** Whether it isn't settled and never will be, even after a reorg. */
  isLost: boolean
  /** Whether no part of it can move any more. */
  isFinal: boolean
  /** Number of failed attempts. */
  attempts: number
  failureCode: string | null
  /**
   * The transaction that settled it. If none did, its last batch's transaction with the highest gas fee; null if it was requeued since that batch.
   */
  txHash: Hex | null
  /** The transaction that used or cancelled the platform's half. */
  feeTxHash: Hex | null
  /** Log index of the AuthorizationUsed event that settled it. Its Transfer event follows. */
  logIndex: number | null
  /** The batch of the transaction `txHash`; null if someone else sent that transaction. */
  batchId: Hex | null
}

export async function readProgress(
  sql: Queryable,
  paymentIds: readonly string[],
): Promise<Map<string, SettlementProgress>> {
  const rows = await sql<SettlementProgress[]>`
    select p.id as "paymentId", p.source, h.state, fee.state as "feeState", q.stage, q.submission, o.kind as ended, o.code as "failureCode",
      h.state <> 'settled' and (
        o.final_at is not null
        or h.state = 'open' and coalesce(p.valid_before <= head.block_time and head.block_number = head.read_number, false)
        or coalesce(o.kind in ('failed', 'voided'), false) and not ${mayStillSettle(sql, sql`p.id`)}
      ) as "isLost", o.final_at is not null as "isFinal", coalesce(q.attempts, o.attempts, 0) as attempts,
      coalesce(h.tx_hash, sent.hash) as "txHash", fee.tx_hash as "feeTxHash", h.log_index as "logIndex",
      case when h.tx_hash is null or h.tx_hash = sent.hash then sent.batch_id end as "batchId"
    from payment p
    join ${halves(sql)} h on h.payment_id = p.id and h.half = 0
    left join ${halves(sql)} fee on fee.payment_id = p.id and fee.half = 1
    left join queue q on q.payment_id = p.id
    left join payment_result o on o.payment_id = p.id
    left join record_head head on head.chain_id = p.chain_id
    left join lateral (
      select t.hash, b.batch_id
      from batch_item i join batch b on b.id = i.batch_id join transaction t on t.batch_id = b.id
      where i.payment_id = p.id and not i.is_dropped and t.kind <> 'cancellation' and (t.broadcast_at is not null or t.mined_block is not null)
        -- Ignore a batch that was closed without settling the payment, because that batch doesn't concern the next attempt.
        and (b.state <> 'closed' or q.payment_id is null or t.hash = h.tx_hash)
      order by t.hash = h.tx_hash desc nulls last, b.id desc, t.mined_block nulls last, t.max_fee_per_gas desc
      limit 1
    ) sent on true
    where p.id = any(${[...paymentIds]}::text[])`
  return new Map(rows.map((row) => [row.paymentId, row]))
}

/**
 * Seconds after which a caller's turn to receive the answer lapses, so that another caller may receive it. By then, the answer has been sent, or the
 * keeper that was sending it is gone.
 */
const answerSeconds = 5

/**
 * Begins a caller's turn to receive the answer that a payment is settled. Only one caller may receive this answer. The turn ends with {@link
 * endAnswer}, or lapses.
 *
 * @returns when the turn began; `told` if a caller has received the answer; `busy` if another caller's answer is in progress.
 */
export async function beginAnswer(sql: Queryable, paymentId: string): Promise<Date | 'told' | 'busy'> {
  const [row] = await sql<{ since: Date | null; isTold: boolean }[]>`
    with begun as (
      update facilitation set answered_at = date_trunc('milliseconds', clock_timestamp())
      where payment_id = ${paymentId} and told_at is null
        and (answered_at is null or answered_at < clock_timestamp() - make_interval(secs => ${answerSeconds}))
      returning answered_at
    )
    select (select answered_at from begun) as since, told_at is not null as "isTold"
    from facilitation where payment_id = ${paymentId}`
  return row?.since ?? (row?.isTold ? 'told' : 'busy')
}

/** Ends the turn that began at `since`. If the caller didn't receive the answer, the next caller may receive it. */
export async function endAnswer(
  sql: Queryable,
  paymentId: string,
  { since, isHeard }: { since: Date; isHeard: boolean },
): Promise<void> {
  await sql`
    update facilitation set ${isHeard ? sql`told_at = clock_timestamp()` : sql`answered_at = null`}
    where payment_id = ${paymentId} and told_at is null and (${isHeard} or answered_at = ${since})`
}
