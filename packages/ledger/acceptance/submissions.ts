import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { outcomes } from '@tollkeeper/sdk/protocol/settlement'
import type { Address, Hex } from 'viem'
import { halves, isAuthorization } from '../facts/halves.ts'
import { recordFailure } from '../queue/failures.ts'
import {
  isInBatch,
  isLoose,
  mayStillSettle,
  moves,
  type OutcomeKind,
  reopenPayments,
  type Stage,
} from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'
import { acceptPayments, type Candidate, type Verdict } from './acceptPayments.ts'

// POST /submit makes payments of the source `submission`, which are due at once, and settled together or not at all.

/** Names an authorization on a chain. */
export function nameOf({ from, nonce }: Pick<SignedAuthorization, 'from' | 'nonce'>): string {
  return `${from}:${nonce}`
}

/** The payment of ours that holds an authorization, and where it stands. */
export type KnownAuthorization = {
  paymentId: string
  /** 0: the provider's, 1: the platform's fee. */
  half: 0 | 1
  recipient: Address
  value: bigint
  isSubmission: boolean
  /** Null: it is over, see `ended`. */
  stage: Stage | null
  ended: OutcomeKind | null
  /** The submission that it is settled with. */
  submission: Hex | null
  /**
   * A transaction of ours has tried the authorization in vain. Another try would only cost gas: its signer
   * can sign another one.
   */
  isTriedInVain: boolean
  /** It failed in a transaction that isn't final yet, or that a reorg has since let settle it. */
  isOut: boolean
  /** It failed, but may still settle. */
  maySettle: boolean
}

type Scope = { chainId: number; token: Address }
type Named = Pick<SignedAuthorization, 'from' | 'nonce'>

/** The payments of this gateway that these authorizations belong to, by {@link nameOf}. */
export async function findPayments(
  sql: Queryable,
  scope: Scope,
  authorizations: readonly Named[],
): Promise<Map<string, KnownAuthorization>> {
  const rows = await sql<(KnownAuthorization & { name: string })[]>`
    select a.authorizer || ':' || a.nonce as name, a.payment_id as "paymentId", a.half, a.recipient, a.value,
      p.source = 'submission' as "isSubmission", q.stage, q.submission, o.kind as ended,
      exists (
        select from batch_item i join batch b on b.id = i.batch_id
        where i.payment_id = a.payment_id and (
          case a.half when 0 then i.provider_outcome else i.fee_outcome end = ${outcomes.indexOf('failed')}
          or (b.trigger = 'direct' and (b.outcome = 'reverted'
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
    left join outcome o on o.payment_id = p.id`
  return new Map(rows.map(({ name, ...rest }) => [name, rest]))
}

/** Another submission is settling a part of this one. */
export class SubmissionConflict extends Error {
  override name = 'SubmissionConflict'
}

export type NewSubmission = {
  /** The same for the same authorizations. */
  key: Hex
  /** The payments that are new. */
  candidates: readonly Candidate[]
  /** Known payments that hold the other authorizations. */
  known: readonly KnownAuthorization[]
}

/**
 * Stores the new payments of a submission, and makes all of it due. Failed ones begin anew; those in a batch stay
 * there.
 *
 * @returns a verdict for each candidate. Unless all are `accepted`, roll back.
 * @throws {SubmissionConflict} if another submission is settling a part of it.
 */
export async function storeSubmission(
  tx: Queryable,
  { key, candidates, known }: NewSubmission,
  now: Date,
): Promise<Verdict[]> {
  const failed = known.filter(({ ended }) => ended === 'failed')
  // These were never sent, so a new payment may take their place.
  await tx`
    delete from payment
    where id = any(${failed.flatMap(({ isSubmission, paymentId }) => (isSubmission ? paymentId : []))}::text[])
      and id in (select payment_id from outcome where kind = 'failed')`
  await reopenPayments(
    tx,
    failed.flatMap(({ isSubmission, paymentId }) => (isSubmission ? [] : paymentId)),
    'forgotten',
  )
  const held = [
    ...new Set(
      known.flatMap(({ isSubmission, ended, paymentId }) =>
        ended === 'failed' && isSubmission ? [] : paymentId,
      ),
    ),
  ]
  const rows = await tx<{ id: string; isTaken: boolean }[]>`
    with held as materialized (
      select q.payment_id, ${isInBatch(tx)} as is_in_batch, q.submission from queue q
      where q.payment_id = any(${held}::text[]) order by q.payment_id for update
    ), joined as (
      update queue q set due_at = ${now}, submission = ${key}, ${moves(tx).toWaiting}
      from held where q.payment_id = held.payment_id and ${isLoose(tx)} and q.submission is null
    )
    select payment_id as id, not is_in_batch and submission is not null and submission <> ${key} as "isTaken" from held`
  if (rows.some(({ isTaken }) => isTaken)) throw new SubmissionConflict('a part of it is another submission')
  const first = { stage: 'due', since: now.getTime(), submission: key } as const
  return acceptPayments(
    tx,
    candidates.map((candidate) => ({ ...candidate, first })),
  )
}

/** Finds submitted payments that have left a batch and are queued again: they aren't retried. */
export async function readLeftOfSubmission(sql: Queryable, batchId: bigint): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select q.payment_id as id
    from batch_item i
    join queue q on q.payment_id = i.payment_id and ${isLoose(sql)}
    join payment p on p.id = q.payment_id and p.source = 'submission'
    where i.batch_id = ${batchId}
    order by i.position`
  return rows.map(({ id }) => id)
}

/** How much failed submissions reserve of their payers' balances until they are stored anew. */
export async function readReplaced(
  sql: Queryable,
  known: readonly KnownAuthorization[],
): Promise<Map<Address, bigint>> {
  const ids = known.flatMap(({ isSubmission, ended, paymentId }) =>
    isSubmission && ended === 'failed' ? paymentId : [],
  )
  const rows = await sql<{ payer: Address; amount: bigint }[]>`
    select p.payer, sum(p.provider_amount + p.fee_amount) as amount
    from payment p join outcome o on o.payment_id = p.id
    where p.id = any(${ids}::text[]) and o.final_at is null
    group by p.payer`
  return new Map(rows.map(({ payer, amount }) => [payer, amount]))
}

/** Gives up the waiting payments of a submission because a part of it is over; payments of other sources go on alone. */
export async function giveUpSubmission(
  tx: Queryable,
  key: Hex,
  { code, now }: { code: string; now: Date },
): Promise<void> {
  const rows = await tx<{ id: string }[]>`
    select payment_id as id from queue q where submission = ${key} and ${isLoose(tx)} order by payment_id for update`
  await giveUpTogether(
    tx,
    rows.map(({ id }) => id),
    { code, now },
  )
}

/** The same for payments of one submission; those of other sources aren't settled together any more. */
export async function giveUpTogether(
  tx: Queryable,
  paymentIds: readonly string[],
  { code, now }: { code: string; now: Date },
): Promise<void> {
  const rows = await tx<{ id: string; isSubmission: boolean }[]>`
    update queue q set submission = null, due_at = case when p.source = 'facilitator' then q.due_at end
    from payment p
    where p.id = q.payment_id and q.payment_id = any(${[...paymentIds]}::text[]) and ${isLoose(tx)}
    returning q.payment_id as id, p.source = 'submission' as "isSubmission"`
  for (const { id: paymentId, isSubmission } of rows) {
    if (!isSubmission) continue
    const failure = { paymentId, batchId: null, code, detail: '', isFinal: true }
    await recordFailure(tx, failure, { now })
  }
}
