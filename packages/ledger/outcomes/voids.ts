import type { Address, Hex } from 'viem'
import { giveUpSubmission } from '../acceptance/submissions.ts'
import { halves, halvesOf } from '../facts/halves.ts'
import { endPayments, isLoose, mayStillSettle, type OutcomeKind, reopenPayments } from '../queue/stages.ts'
import type { Database, Queryable } from '../store/database.ts'

export type VoidOutcome = 'voided' | 'unknown' | 'forbidden' | 'claimed'

/**
 * Voids a payment, unless a batch has claimed it, it may still settle, it is over, or a half of it moved. Voiding it again
 * does no harm.
 *
 * The keeper claims under the same row lock, so the second of the two sees the first.
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
      select ${isLoose(tx)} as "isFree", q.submission from queue q where q.payment_id = ${paymentId} for update`
    // A failed payment may still move, so its provider can void it: it served nothing.
    const [outcome] = queued
      ? []
      : await tx<{ kind: OutcomeKind; isOpen: boolean }[]>`
          select kind, final_at is null as "isOpen" from outcome where payment_id = ${paymentId} for update`
    if (outcome?.kind === 'voided') return 'voided'
    const isFree = queued?.isFree ?? (outcome?.kind === 'failed' && outcome.isOpen)
    const [taken] = await tx`
      select from payment p where p.id = ${paymentId} and ${mayStillSettle(tx, tx`p.id`)}
      union all
      select from ${halves(tx)} h where payment_id = ${paymentId} and state <> 'open'
      limit 1`
    if (taken !== undefined || !isFree) return 'claimed'
    await endPayments(tx, [{ paymentId, kind: 'voided', code: null, isFinal: false }], now)
    if (queued?.submission) await giveUpSubmission(tx, queued.submission, { code: 'payment_voided', now })
    return 'voided'
  }) as Promise<VoidOutcome>
}

/**
 * Gives up a payment, so that its caller can be told that it won't be settled, even after a reorg.
 *
 * @returns false if it is in a batch, may still settle, or is over.
 */
export async function giveUpUnsent(sql: Database, paymentId: string, now: Date): Promise<boolean> {
  return sql.begin(async (tx): Promise<boolean> => {
    const [queued] = await tx<{ submission: Hex | null }[]>`
      select q.submission from queue q
      where q.payment_id = ${paymentId} and ${isLoose(tx)} and not ${mayStillSettle(tx, tx`q.payment_id`)}
      for update`
    // The chain shows it as cancelled or used, which isn't final yet.
    const spent = await tx`
      select from outcome o
      where o.payment_id = ${paymentId} and o.kind = 'spent' and not ${mayStillSettle(tx, tx`o.payment_id`)}
      for update`
    if (queued === undefined && spent.length === 0) return false
    const ended = await endPayments(tx, [{ paymentId, kind: 'voided', code: null, isFinal: false }], now)
    if (queued?.submission) await giveUpSubmission(tx, queued.submission, { code: 'payment_voided', now })
    return ended.length === 1
  }) as Promise<boolean>
}

export type VoidedHalf = { paymentId: string; from: Address; nonce: Hex }

/** How far a chain's clock may be behind ours. */
const graceSeconds = 600

/**
 * The provider halves of voided payments that the record shows as open, though somebody who saw the signatures could settle
 * them: the most valuable first, or in the order of payments.
 */
export async function readVoidedHalves(
  sql: Queryable,
  chainId: number,
  now: Date,
  { limit, after }: { limit: number; after?: string },
): Promise<VoidedHalf[]> {
  return sql<VoidedHalf[]>`
    select p.id as "paymentId", h.authorizer as "from", h.nonce
    from outcome o
    join payment p on p.id = o.payment_id
    cross join lateral ${halvesOf(sql, sql`p.id`)} h
    where o.chain_id = ${chainId} and o.kind = 'voided' and o.final_at is null
      and not exists (select from lookup where lookup.payment_id = p.id)
      and h.half = 0 and h.state = 'open' and h.valid_before > extract(epoch from ${now}::timestamptz) - ${graceSeconds}
      ${after === undefined ? sql`` : sql`and p.id > ${after}`}
    order by ${after === undefined ? sql`p.provider_amount desc` : sql`p.id`}
    limit ${limit}`
}

/** Counts voided payments again whose provider took its half. */
export async function unvoidPayments(sql: Queryable, paymentIds: readonly string[]): Promise<void> {
  const reopened = await reopenPayments(sql, paymentIds)
  await sql`
    update provider set void_violations = void_violations + taken.count
    from (
      select provider_id, count(*) from payment where id = any(${reopened}::text[]) group by provider_id
    ) taken
    where provider.id = taken.provider_id`
}
