import type { Address, Hex } from 'viem'
import type { Database, Queryable } from './database.ts'
import { type HalfState, halves } from './halves.ts'

// Payments that came through x402's facilitator (keeper/http/facilitator).

/** A payment that the facilitator reserved or settles. */
export type FacilitatedPayment = {
  paymentId: string
  /** Whose API key came along; null: none did. */
  providerId: string | null
  /** SHA-256 in hex of what was presented; null once that is forgotten. */
  requestHash: string | null
  paymentIdentifier: string | null
  /** Null: POST /settle came. */
  reservedUntil: Date | null
  /** When POST /settle said that it is settled. */
  answeredAt: Date | null
}

function columns(sql: Queryable) {
  return sql`f.payment_id as "paymentId", f.provider_id as "providerId", encode(s.request_hash, 'hex') as "requestHash",
    f.payment_identifier as "paymentIdentifier", f.reserved_until as "reservedUntil", f.answered_at as "answeredAt"`
}

/** What holds an authorization: a payment of the facilitator's, another payment (`null`), or nothing. */
export async function findFacilitated(
  sql: Queryable,
  { chainId, token, payer, nonce }: { chainId: number; token: Address; payer: Address; nonce: Hex },
): Promise<FacilitatedPayment | null | undefined> {
  const [row] = await sql<FacilitatedPayment[]>`
    select ${columns(sql)}
    from signed_authorization a
    left join presentation s on s.payment_id = a.payment_id
    left join facilitation f on f.payment_id = a.payment_id
    where a.chain_id = ${chainId} and a.token = ${token} and a.authorizer = ${payer} and a.nonce = ${nonce}`
  if (row === undefined) return undefined
  return row.paymentId === null ? null : row
}

/** The payment that a payer gave this identifier. */
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
 * Makes reserved payments due, also such as have lapsed and are still there.
 *
 * @returns which of them are reserved no longer, by this call.
 */
export async function settleReserved(
  database: Database,
  paymentIds: readonly string[],
  now: Date,
): Promise<Set<string>> {
  const rows = await database<{ id: string }[]>`
    with reserved as materialized (
      select payment_id, provider_id from facilitation
      where payment_id in ${database(paymentIds)} and reserved_until is not null
      order by payment_id for update
    ), taken as (
      update facilitation f set reserved_until = null from reserved where f.payment_id = reserved.payment_id
    )
    update payment p set due_at = ${now}, provider_id = reserved.provider_id, is_claimed = false
    from reserved where p.id = reserved.payment_id
    returning p.id`
  return new Set(rows.map(({ id }) => id))
}

/**
 * Deletes reservations that lapsed: authorization and balance are free again.
 *
 * `payer.accepted_total` keeps them, like voided payments: a payer may have used a reserved authorization itself, and were
 * that subtracted, a limit that is remembered would allow it once more.
 *
 * @returns how many.
 */
export async function releaseReservations(sql: Queryable, now: Date, payer?: Address): Promise<number> {
  const { count } = await sql`
    with lapsed as (
      select payment_id from facilitation
      where reserved_until < ${now} ${payer === undefined ? sql`` : sql`and payer = ${payer}`}
      for update skip locked
    )
    delete from payment where id in (select payment_id from lapsed)`
  return count
}

/** How far the settlement of a payment has come. */
export type SettlementProgress = {
  paymentId: string
  state: HalfState
  failedAt: Date | null
  failureCode: string | null
  voidedAt: Date | null
  /** Of the transaction that settled it, or else of the dearest one that is out. */
  txHash: Hex | null
  /** Of the AuthorizationUsed that settled it; its Transfer follows. */
  logIndex: number | null
  /** Of the batch that the transaction is of; null: a stranger's. */
  batchId: Hex | null
}

/** @throws where the index is being deployed. */
export async function readProgress(
  sql: Queryable,
  paymentIds: readonly string[],
): Promise<Map<string, SettlementProgress>> {
  const rows = await sql<SettlementProgress[]>`
    select p.id as "paymentId", h.state, p.failed_at as "failedAt", p.failure_code as "failureCode",
      p.voided_at as "voidedAt", coalesce(h.tx_hash, sent.hash) as "txHash", h.log_index as "logIndex",
      case when h.tx_hash is null or h.tx_hash = sent.hash then sent.batch_id end as "batchId"
    from payment p
    join ${halves(sql)} h on h.payment_id = p.id and h.half = 0
    left join lateral (
      select t.hash, b.batch_id
      from batch_item i join batch b on b.id = i.batch_id join transaction t on t.batch_id = b.id
      where i.payment_id = p.id and t.kind <> 'cancellation' and (t.broadcast_at is not null or t.mined_block is not null)
      order by t.hash = h.tx_hash desc nulls last, b.id desc, t.mined_block nulls last, t.max_fee_per_gas desc
      limit 1
    ) sent on true
    where p.id in ${sql(paymentIds)}`
  return new Map(rows.map((row) => [row.paymentId, row]))
}

/** True for the one caller that may say that it is settled. */
export async function claimAnswer(sql: Queryable, paymentId: string, now: Date): Promise<boolean> {
  const rows = await sql`
    update facilitation set answered_at = ${now} where payment_id = ${paymentId} and answered_at is null
    returning payment_id`
  return rows.length === 1
}

/**
 * Gives up a payment of which nothing was signed yet, so that whoever waits can be told that it won't be settled.
 *
 * @returns false where it is in a batch, or over.
 */
export async function giveUpUnsent(sql: Queryable, paymentId: string, now: Date): Promise<boolean> {
  const rows = await sql`
    update payment set voided_at = ${now}
    where id = ${paymentId} and not is_claimed and voided_at is null and failed_at is null and concluded_at is null
      and spent_block is null and published_at is null
      and not exists (select from batch_item i where i.payment_id = payment.id)
    returning id`
  return rows.length === 1
}
