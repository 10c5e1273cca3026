import type { Address, Hex } from 'viem'
import { failSubmission } from '../acceptance/submissions.ts'
import { halves, halvesOf } from '../facts/halves.ts'
import {
  endPayments,
  isUnbatched,
  mayStillSettle,
  type PaymentResult,
  reopenPayments,
} from '../queue/stages.ts'
import type { Database, Queryable } from '../store/database.ts'

export type VoidOutcome = 'voided' | 'unknown' | 'forbidden' | 'claimed'

/**
 * Voids a payment that waits in the queue, or that has failed and isn't final. Returns `claimed` for a payment that a batch has claimed, that may
 * still settle, or of which a half was used or cancelled. Voiding a payment again has no effect.
 *
 * The keeper claims payments under the same row lock. So if a claim and a void happen at the same time, the second sees what the first did.
 */
export async function voidPayment(
  sql: Database,
  { paymentId, providerId, now }: { paymentId: string; providerId: string; now: Date },
): Promise<VoidOutcome> {
  return sql.begin(async (tx): Promise<VoidOutcome> => {
    const [payment] = await tx<{ providerId: string | null }[]>`
      select provider_id as "providerId" from payment where id = ${paymentId}`
    if (payment === undefined) return 'unknown'
    if (payment.providerId !== providerId) return 'forbidden'
    const [queued] = await tx<{ isFree: boolean; submission: Hex | null }[]>`
      select ${isUnbatched(tx)} as "isFree", q.submission from queue q where q.payment_id = ${paymentId} for update`
    // A failed payment may still settle. So its provider may void it, if the provider didn't serve the request.
    const [outcome] = queued
      ? []
      : await tx<{ kind: PaymentResult; isOpen: boolean }[]>`
          select kind, final_at is null as "isOpen" from payment_result where payment_id = ${paymentId} for update`
    if (outcome?.kind === 'voided') return 'voided'
    const isFree = queued?.isFree ?? (outcome?.kind === 'failed' && outcome.isOpen)
    const [taken] = await tx`
      select from payment p where p.id = ${paymentId} and ${mayStillSettle(tx, tx`p.id`)}
      union all
      select from ${halves(tx)} h where payment_id = ${paymentId} and state <> 'open'
      limit 1`
    if (taken !== undefined || !isFree) return 'claimed'
    await endPayments(tx, [{ paymentId, kind: 'voided', code: null, isFinal: false }], now)
    if (queued?.submission) await failSubmission(tx, queued.submission, { code: 'payment_voided', now })
    return 'voided'
  }) as Promise<VoidOutcome>
}

/**
 * Voids an unsent payment permanently. Its caller gets the answer that it won't be settled, which must stay true even after a reorg.
 *
 * @returns false if it is in a batch, may still settle, or has a result other than `spent`.
 */
export async function voidUnsent(sql: Database, paymentId: string, now: Date): Promise<boolean> {
  return sql.begin(async (tx): Promise<boolean> => {
    const [queued] = await tx<{ submission: Hex | null }[]>`
      select q.submission from queue q
      where q.payment_id = ${paymentId} and ${isUnbatched(tx)} and not ${mayStillSettle(tx, tx`q.payment_id`)}
      for update`
    // A payment with the result `spent` was cancelled or used on chain, which isn't final yet and may be reverted by a reorg.
    const spent = await tx`
      select from payment_result o
      where o.payment_id = ${paymentId} and o.kind = 'spent' and not ${mayStillSettle(tx, tx`o.payment_id`)}
      for update`
    if (queued === undefined && spent.length === 0) return false
    const ended = await endPayments(tx, [{ paymentId, kind: 'voided', code: null, isFinal: false }], now)
    if (queued?.submission) await failSubmission(tx, queued.submission, { code: 'payment_voided', now })
    return ended.length === 1
  }) as Promise<boolean>
}

export type VoidedHalf = { paymentId: string; from: Address; nonce: Hex }

/** Maximum seconds by which a chain's clock may be behind ours. */
const graceSeconds = 600

/**
 * Reads the provider's halves of voided payments, if these halves are open in the record. The caller checks them on chain, because anyone who saw the
 * signatures could settle them.
 *
 * @param page.after if given, reads the payments with the next ids after this id; otherwise, reads the most valuable payments.
 */
export async function readVoidedHalves(
  sql: Queryable,
  chainId: number,
  now: Date,
  { limit, after }: { limit: number; after?: string },
): Promise<VoidedHalf[]> {
  return sql<VoidedHalf[]>`
    select p.id as "paymentId", h.authorizer as "from", h.nonce
    from payment_result o
    join payment p on p.id = o.payment_id
    cross join lateral ${halvesOf(sql, sql`p.id`)} h
    where o.chain_id = ${chainId} and o.kind = 'voided' and o.final_at is null
      and not exists (select from lookup where lookup.payment_id = p.id)
      and h.half = 0 and h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz) - ${graceSeconds}
      ${after === undefined ? sql`` : sql`and p.id > ${after}`}
    order by ${after === undefined ? sql`p.provider_amount desc` : sql`p.id`}
    limit ${limit}`
}

/** Reopens voided payments whose provider settled its half, and counts them as the provider's violations. */
export async function unvoidPayments(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  const reopened = await reopenPayments(sql, paymentIds)
  await sql`
    update provider set void_violations = void_violations + taken.count
    from (
      select provider_id, count(*) from payment where id = any(${reopened}::text[]) group by provider_id
    ) taken
    where provider.id = taken.provider_id`
}
