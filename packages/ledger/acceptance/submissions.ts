import { outcomes } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import type { Address, Hex } from 'viem'
import { halves, isAuthorization } from '../facts/halves.ts'
import { recordFailure } from '../queue/failures.ts'
import { setHasCode } from '../queue/queue.ts'
import {
  isInBatch,
  isReserved,
  isUnbatched,
  mayStillSettle,
  moves,
  type PaymentResult,
  reopenPayments,
} from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'
import { acceptPayments, type Candidate, type Verdict } from './acceptPayments.ts'

// POST /submit creates payments of the source `submission`, which are due immediately, and settle together or not at all.

/** Returns a string that identifies an authorization on its chain. */
export function nameOf({ from, nonce }: Pick<SignedAuthorization, 'from' | 'nonce'>): string {
  return `${from}:${nonce}`
}

/** Our payment that holds an authorization, and its state. */
export type KnownAuthorization = {
  paymentId: string
  /** 0: the provider's half; 1: the platform's fee. */
  half: 0 | 1
  /** Whether the payment has two authorizations: the provider's and the platform's. */
  isPair: boolean
  recipient: Address
  value: bigint
  validAfter: bigint
  validBefore: bigint
  isSubmission: boolean
  /** The payment's result; null if it has none. */
  ended: PaymentResult | null
  /** Whether it is reserved for its seller. */
  isReserved: boolean
  /** Whether the payment waits in the queue without a submission, or with another submission. */
  isReleased: boolean
  /** Whether the payment waits in the queue with another submission. */
  isTaken: boolean
  /**
   * Whether one of our transactions tried to settle the authorization and failed. Another attempt would only cost gas, so the signer should sign a
   * new authorization.
   */
  isTriedInVain: boolean
  /**
   * True if the stored result `failed` may be wrong: one of our open transactions contains the payment, or the chain shows that a part of it settled.
   */
  isOut: boolean
  /** Whether the payment has failed but may still settle. */
  maySettle: boolean
}

/** The chain, the token, and the submission for which the payments are read. */
type Scope = { chainId: number; token: Address; submission: Hex }
type Named = Pick<SignedAuthorization, 'from' | 'nonce'>

/** Finds this gateway's payments that contain these authorizations. The map's keys come from {@link nameOf}. */
export async function findPayments(
  sql: Queryable,
  scope: Scope,
  authorizations: readonly Named[],
): Promise<Map<string, KnownAuthorization>> {
  const rows = await sql<(KnownAuthorization & { name: string })[]>`
    select a.authorizer || ':' || a.nonce as name, a.payment_id as "paymentId", a.half,
      p.fee_amount > 0 and p.splitter is null as "isPair", a.recipient, a.value,
      a.valid_after as "validAfter", a.valid_before as "validBefore",
      p.source = 'submission' as "isSubmission", o.kind as ended,
      coalesce(${isReserved(sql)}, false) as "isReserved",
      coalesce(${isUnbatched(sql)} and q.submission is distinct from ${scope.submission}, false) as "isReleased",
      coalesce(${isUnbatched(sql)} and q.submission <> ${scope.submission}, false) as "isTaken",
      exists (
        select from batch_item i join batch b on b.id = i.batch_id
        where i.payment_id = a.payment_id and (
          case a.half when 0 then i.provider_outcome else i.fee_outcome end = ${outcomes.indexOf('failed')}
          or (b.trigger = 'submission' and (b.result = 'reverted'
            or exists (select from transaction t where t.batch_id = b.id and not t.succeeded)))
        )
      ) as "isTriedInVain",
      o.kind is not null and o.kind = 'failed' and (
        exists (select from ${halves(sql)} h where h.payment_id = p.id and h.state = 'settled')
        or exists (
          select from batch_item i join batch b on b.id = i.batch_id join transaction t on t.batch_id = b.id
          where i.payment_id = p.id and not i.is_dropped and b.state <> 'closed'
        )
      ) as "isOut",
      o.kind is not null and o.kind = 'failed' and ${mayStillSettle(sql, sql`p.id`)} as "maySettle"
    from unnest(${authorizations.map((one) => one.from)}::text[], ${authorizations.map((one) => one.nonce)}::text[])
      as asked (authorizer, nonce)
    join signed_authorization a on ${isAuthorization(sql, scope, { payer: sql`asked.authorizer`, nonce: sql`asked.nonce` })}
    join payment p on p.id = a.payment_id
    left join queue q on q.payment_id = p.id
    left join payment_result o on o.payment_id = p.id`
  return new Map(rows.map(({ name, ...rest }) => [name, rest]))
}

/**
 * Reasons why a stored payment can't join a submission.
 *
 * - `taken`: another submission is settling it
 * - `undecided`: it failed after it was read, and may still settle or be submitted again
 * - `voided`, `failed`: its result is final
 */
export type ConflictReason = 'taken' | 'undecided' | 'voided' | 'failed'

/** A payment can't join the submission. The message contains the reason for the caller. */
export class SubmissionConflict extends Error {
  override name = 'SubmissionConflict'
  readonly reason: ConflictReason

  constructor(reason: ConflictReason) {
    super(conflictMessages[reason])
    this.reason = reason
  }
}

export const takenElsewhere = 'A transfer is already being settled as part of another submission'

const conflictMessages: Record<ConflictReason, string> = {
  taken: takenElsewhere,
  undecided: 'A transfer has failed, but may still settle',
  voided: 'A transfer was voided',
  failed: 'A transfer can no longer be settled: sign a transfer with a new nonce',
}

/** A stored payment whose authorizations were presented again. */
export type PresentedAgain = {
  paymentId: string
  /** Whether it had failed, so that it must be requeued. */
  isFailed: boolean
  payerHasCode: boolean
  /** The checked signatures of the provider's and the platform's half; null for a half that wasn't presented. */
  signatures: readonly [Hex | null, Hex | null]
}

export type NewSubmission = {
  /** Identifies the submission. It is equal for equal authorizations. */
  key: Hex
  /** The new payments. */
  candidates: readonly Candidate[]
  /** The payments that the gateway already stored, because their authorizations were presented before. */
  known: readonly PresentedAgain[]
}

/**
 * Stores the new payments of a submission, and makes all its payments due. Failed payments are requeued with new attempts. Payments that are in a
 * batch stay there.
 *
 * @returns a verdict for each candidate. The caller must roll back unless all are `accepted`.
 * @throws {SubmissionConflict} if another submission is settling one of the payments, or if one of them was voided or has failed.
 */
export async function storeSubmission(
  tx: Queryable,
  { key, candidates, known }: NewSubmission,
  now: Date,
): Promise<Verdict[]> {
  await reopenFailed(
    tx,
    known.filter(({ isFailed }) => isFailed),
  )
  const ids = known.map(({ paymentId }) => paymentId)
  const rows = await tx<{ id: string; isTaken: boolean }[]>`
    with held as materialized (
      select q.payment_id, ${isInBatch(tx)} as is_in_batch, q.submission from queue q
      where q.payment_id = any(${ids}::text[]) order by q.payment_id for update
    ), joined as (
      update queue q set due_at = ${now}, submission = ${key}, ${moves(tx).toWaiting}
      from held where q.payment_id = held.payment_id and ${isUnbatched(tx)} and q.submission is null
    )
    select payment_id as id, not is_in_batch and submission is not null and submission <> ${key} as "isTaken" from held`
  if (rows.some(({ isTaken }) => isTaken)) throw new SubmissionConflict('taken')
  const conflict = await readEndedConflict(tx, ids)
  if (conflict) throw new SubmissionConflict(conflict)
  const first = { stage: 'due', since: now.getTime(), submission: key } as const
  return acceptPayments(
    tx,
    candidates.map((candidate) => ({ ...candidate, first })),
  )
}

/**
 * Reads why payments with a result can't join a submission; null if none failed or was voided. If any payment is undecided, the result is
 * `undecided`, because callers treat `voided` and `failed` as permanent, and an undecided payment may still settle.
 */
async function readEndedConflict(
  tx: Queryable,
  paymentIds: readonly string[],
): Promise<Exclude<ConflictReason, 'taken'> | null> {
  const rows = await tx<{ kind: 'failed' | 'voided'; isUndecided: boolean }[]>`
    select o.kind, o.kind = 'failed' and (o.final_at is null or ${mayStillSettle(tx, tx`o.payment_id`)}) as "isUndecided"
    from payment_result o where o.payment_id = any(${[...paymentIds]}::text[]) and o.kind in ('failed', 'voided')`
  if (rows.some(({ isUndecided }) => isUndecided)) return 'undecided'
  if (rows.some(({ kind }) => kind === 'voided')) return 'voided'
  return rows.length > 0 ? 'failed' : null
}

/**
 * Requeues failed payments. Their accepted terms and reservations stay unchanged. Their signatures are replaced with the signatures presented now,
 * because a contract may no longer accept the earlier signatures.
 *
 * This function leaves out payments whose result is final, because their signatures may have been deleted (see retention.ts).
 */
async function reopenFailed(tx: Queryable, failed: readonly PresentedAgain[]): Promise<void> {
  if (failed.length === 0) return
  const locked = await tx<{ id: string }[]>`
    select payment_id as id from payment_result
    where payment_id = any(${failed.map(({ paymentId }) => paymentId)}::text[]) and kind = 'failed' and final_at is null
    order by payment_id for update`
  const reopened = new Set(
    await reopenPayments(
      tx,
      locked.map(({ id }) => id),
      'forgotten',
    ),
  )
  const again = failed.filter(({ paymentId }) => reopened.has(paymentId))
  await tx`
    update presentation s set
      signature = coalesce(decode(substr(again.signature, 3), 'hex'), s.signature),
      fee_signature = coalesce(decode(substr(again.fee_signature, 3), 'hex'), s.fee_signature)
    from unnest(
      ${again.map(({ paymentId }) => paymentId)}::text[],
      ${again.map(({ signatures }) => signatures[0])}::text[],
      ${again.map(({ signatures }) => signatures[1])}::text[]
    ) as again (payment_id, signature, fee_signature)
    where s.payment_id = again.payment_id`
  await setHasCode(
    tx,
    again.flatMap(({ paymentId, payerHasCode }) => (payerHasCode ? paymentId : [])),
    true,
  )
}

/**
 * Finds the submitted payments that left a batch and are in the queue again. The caller fails them, because submitted payments aren't retried.
 * Payments that were submitted again since then are left out, because they belong to another submission now.
 */
export async function readLeftOfSubmission(sql: Queryable, batchId: bigint): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select q.payment_id as id
    from batch_item i
    join queue q on q.payment_id = i.payment_id and ${isUnbatched(sql)}
    join payment p on p.id = q.payment_id and p.source = 'submission'
    where i.batch_id = ${batchId} and q.submission is null
    order by i.position`
  return rows.map(({ id }) => id)
}

/** Fails the waiting payments of a submission, because one of its payments has ended. Payments of other sources continue separately. */
export async function failSubmission(
  tx: Queryable,
  key: Hex,
  { code, now }: { code: string; now: Date },
): Promise<void> {
  const rows = await tx<{ id: string }[]>`
    select payment_id as id from queue q where submission = ${key} and ${isUnbatched(tx)} order by payment_id for update`
  await failTogether(
    tx,
    rows.map(({ id }) => id),
    { code, now },
  )
}

/** Fails these payments of one submission. Payments that other sources created don't fail: they continue separately. */
export async function failTogether(
  tx: Queryable,
  paymentIds: readonly string[],
  { code, now }: { code: string; now: Date },
): Promise<void> {
  const rows = await tx<{ id: string; isSubmission: boolean }[]>`
    update queue q set submission = null, due_at = case when p.source = 'facilitator' then q.due_at end
    from payment p
    where p.id = q.payment_id and q.payment_id = any(${[...paymentIds]}::text[]) and ${isUnbatched(tx)}
    returning q.payment_id as id, p.source = 'submission' as "isSubmission"`
  for (const { id: paymentId, isSubmission } of rows) {
    if (!isSubmission) continue
    const failure = { paymentId, batchId: null, code, detail: '', isFinal: true }
    await recordFailure(tx, failure, { now })
  }
}
