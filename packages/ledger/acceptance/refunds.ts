import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Database, Queryable } from '../store/database.ts'
import { type Accept, reserveWith } from './acceptance.ts'
import { acceptPayments, type Candidate, type Verdict } from './acceptPayments.ts'

// A refund is a payment from a provider's wallet to the payer of another payment. It is accepted, settled, retried and reverted by a reorg
// like any other payment. Its companion row in `refund` names the payment that it refunds.

/** The payment that is refunded, and the number of its refund. */
export type RefundOf = { paymentId: string; number: number; providerId: string }

/**
 * Stores a refund and reserves its wallet's balance for it.
 *
 * The total of a payment's refunds can't exceed the paid amount: a database constraint rejects any excess, even if this function's sum is wrong.
 *
 * @throws {BaseError} `refund_exceeds_payment`; and the errors of {@link Accept} for the wallet.
 */
export function acceptRefund(database: Database, of: RefundOf): Accept {
  return reserveWith((candidate) => storeRefund(database, of, candidate))
}

/** Stores a refund, but doesn't check the wallet's balance. {@link acceptRefund} checks it first. */
export function storeRefund(database: Database, of: RefundOf, candidate: Candidate): Promise<Verdict> {
  return database.begin((sql) => insertRefund(sql, of, candidate)) as Promise<Verdict>
}

async function insertRefund(
  sql: Queryable,
  { paymentId, number, providerId }: RefundOf,
  candidate: Candidate,
): Promise<Verdict> {
  // Lock the payment's total, so that concurrent refunds are counted sequentially.
  await sql`
    insert into refund_total (payment_id, amount, paid)
    select id, 0, provider_amount + fee_amount from payment where id = ${paymentId}
    on conflict (payment_id) do update set amount = refund_total.amount`
  const [taken] = await sql`select from refund where of_payment_id = ${paymentId} and number = ${number}`
  if (taken) return 'replayed'
  await releaseDead(sql, paymentId)
  const value = candidate.providerAmount
  const [counted] = await sql`
    update refund_total set amount = amount + ${value}
    where payment_id = ${paymentId} and amount + ${value} <= paid
    returning payment_id`
  if (!counted) throw new BaseError('refund_exceeds_payment')
  const [verdict = 'replayed'] = await acceptPayments(sql, [candidate])
  if (verdict !== 'accepted') {
    await sql`update refund_total set amount = amount - ${value} where payment_id = ${paymentId}`
    return verdict
  }
  await sql`
    insert into refund (payment_id, of_payment_id, number, provider_id, accepted_at)
    values (${candidate.id}, ${paymentId}, ${number}, ${providerId}, ${new Date(candidate.acceptedAt)})`
  return verdict
}

/**
 * Releases the amounts of refunds that failed and can't move any more. A failed refund counts until it expires, because anyone who has seen its
 * signature can still send it.
 */
async function releaseDead(sql: Queryable, paymentId: string): Promise<void> {
  await sql`
    with dead as (
      update refund r set released_at = now()
      from payment p
      where r.of_payment_id = ${paymentId} and r.released_at is null and p.id = r.payment_id and ${isDead(sql)}
      returning p.provider_amount
    )
    update refund_total set amount = amount - (select sum(provider_amount) from dead)
    where payment_id = ${paymentId} and exists (select from dead)`
}

/** Returns the condition that the refund `r` failed and can't move any more. */
export function isDead(sql: Queryable) {
  return sql`exists (
    select from payment_result o where o.payment_id = r.payment_id and o.final_at is not null and o.arrived = 0
  )`
}

/** Maximum age in days of a failed refund that is counted. A refund's retries end long before that, so no recent failure is missed. */
const countedDays = 8

/** Counts the refunds that failed within the last day and were not retried, by chain and code. */
export function countFailedRefunds(
  sql: Queryable,
  now: Date,
): Promise<{ chainId: number; code: string; count: number }[]> {
  const since = (days: number) => new Date(now.getTime() - days * 86_400_000)
  return sql<{ chainId: number; code: string; count: number }[]>`
    select o.chain_id as "chainId", o.code, count(*)::int as count
    from refund r join payment_result o on o.payment_id = r.payment_id and o.kind = 'failed'
    where r.accepted_at >= ${since(countedDays)} and o.ended_at >= ${since(1)}
    group by 1, 2`
}
