import type { Address, Hex } from 'viem'
import type { SignedAuthorization } from '#protocol/payload'
import { outcomes } from '#protocol/settlement'
import { type BatchRow, batchColumns } from './batches.ts'
import type { Queryable } from './database.ts'
import type { Lease } from './leases.ts'
import type { QueueScope } from './queue.ts'
import type { TransferReport } from './transferReports.ts'

export type SubmissionState = {
  failureCode: string | null
  report: TransferReport[] | null
  /** Of the transaction that is mined, or else of the dearest one that is out. */
  txHash: Hex | null
}

/** What became of a submission; null if there is none of this key. */
export async function readSubmission(sql: Queryable, key: Hex): Promise<SubmissionState | null> {
  const [row] = await sql<SubmissionState[]>`
    select s.failure_code as "failureCode", s.report, t.hash as "txHash"
    from submission s
    left join lateral (
      select hash from transaction
      where batch_id = s.batch_id and kind <> 'cancellation' and (broadcast_at is not null or mined_block is not null)
      order by mined_block nulls last, max_fee_per_gas desc
      limit 1
    ) t on true
    where s.key = ${key}`
  return row ?? null
}

/** A transfer of a submission, and where it belongs: to a payment of this gateway, or to nothing that we know of. */
export type SubmittedTransfer = {
  authorization: SignedAuthorization
  paymentId: string | null
  /** Position, in the submission, of the transfer that this one is the fee of. */
  feeOf: number | null
}

export type KnownAuthorization = {
  paymentId: string
  recipient: Address
  value: bigint
  isVoided: boolean
  /** A seller verified it through the facilitator, and has not settled it yet. */
  isReserved: boolean
}

/** The payments of this gateway that these authorizations belong to, by `payer:nonce`. */
export async function findPayments(
  sql: Queryable,
  scope: { chainId: number; token: Address },
  authorizations: readonly Pick<SignedAuthorization, 'from' | 'nonce'>[],
): Promise<Map<string, KnownAuthorization>> {
  const rows = await sql<(KnownAuthorization & { name: string })[]>`
    select a.authorizer || ':' || a.nonce as name, a.payment_id as "paymentId", a.recipient, a.value,
      p.voided_at is not null as "isVoided", p.source = 'facilitator' and p.due_at is null as "isReserved"
    from signed_authorization a
    join payment p on p.id = a.payment_id
    join unnest(${authorizations.map((one) => one.from)}::text[], ${authorizations.map((one) => one.nonce)}::text[])
      as asked (authorizer, nonce) on asked.authorizer = a.authorizer and asked.nonce = a.nonce
    where a.chain_id = ${scope.chainId} and a.token = ${scope.token}`
  return new Map(rows.map(({ name, ...rest }) => [name, rest]))
}

/**
 * Those of these authorizations that a transaction of ours has tried and that failed in it, by `payer:nonce`. To try them
 * again would only cost gas again: whoever signed them can sign others.
 */
export async function findTriedInVain(
  sql: Queryable,
  scope: { chainId: number; token: Address },
  authorizations: readonly Pick<SignedAuthorization, 'from' | 'nonce'>[],
): Promise<Set<string>> {
  const failed = outcomes.indexOf('failed')
  const rows = await sql<{ name: string }[]>`
    select distinct asked.authorizer || ':' || asked.nonce as name
    from unnest(${authorizations.map((one) => one.from)}::text[], ${authorizations.map((one) => one.nonce)}::text[])
      as asked (authorizer, nonce)
    cross join lateral (
      select i.batch_id, case a.half when 0 then i.provider_outcome else i.fee_outcome end as outcome
      from signed_authorization a join batch_item i on i.payment_id = a.payment_id
      where a.chain_id = ${scope.chainId} and a.token = ${scope.token}
        and a.authorizer = asked.authorizer and a.nonce = asked.nonce
      union all
      select i.batch_id, case when t.fee_of is null then i.provider_outcome else i.fee_outcome end
      from transfer t join batch_item i on i.transfer_id = coalesce(t.fee_of, t.id)
      where t.chain_id = ${scope.chainId} and t.token = ${scope.token}
        and t.authorizer = asked.authorizer and t.nonce = asked.nonce
    ) tried
    join batch b on b.id = tried.batch_id
    where tried.outcome = ${failed} or (b.trigger = 'direct' and b.outcome = 'reverted')`
  return new Set(rows.map(({ name }) => name))
}

/** A transfer of a submission is at work in another one. */
export class TransferInProgress extends Error {
  override name = 'TransferInProgress'
}

export type NewSubmission = {
  key: Hex
  chainId: number
  token: Address
  transfers: readonly SubmittedTransfer[]
}

/**
 * Keeps a submission until a wallet takes it up. Asking again for the same one changes nothing, but revives it.
 *
 * A transfer may have been asked for before in other company, once that has failed or is over.
 *
 * @throws {TransferInProgress} if one of them is at work elsewhere.
 */
export async function insertSubmission(sql: Queryable, submission: NewSubmission): Promise<void> {
  const { key, chainId, token, transfers } = submission
  const [row] = await sql<{ id: bigint }[]>`
    insert into submission (key, chain_id, token) values (${key}, ${chainId}, ${token})
    on conflict (key) do update
      set failure_code = null, report = null, batch_id = null
      where submission.failure_code is not null
    returning id`
  // Asked for a moment ago by somebody else, and under way.
  if (!row) return

  const paymentIds = new Set(transfers.flatMap(({ paymentId }) => paymentId ?? []))
  for (const paymentId of paymentIds) {
    await sql`
      insert into submission_payment (submission_id, payment_id) values (${row.id}, ${paymentId})
      on conflict do nothing`
  }
  const inserted = new Map<number, bigint>()
  for (const [position, { authorization, paymentId, feeOf }] of transfers.entries()) {
    if (paymentId !== null) continue
    const [transfer] = await sql<{ id: bigint }[]>`
      insert into transfer ${sql({
        submission_id: row.id,
        fee_of: feeOf === null ? null : (inserted.get(feeOf) ?? null),
        chain_id: chainId,
        token,
        authorizer: authorization.from,
        recipient: authorization.to,
        value: authorization.value,
        valid_after: authorization.validAfter,
        valid_before: authorization.validBefore,
        nonce: authorization.nonce,
        signature: Buffer.from(authorization.signature.slice(2), 'hex'),
      })}
      on conflict (chain_id, token, authorizer, nonce) do update
        set submission_id = excluded.submission_id, fee_of = excluded.fee_of, recipient = excluded.recipient,
          value = excluded.value, valid_after = excluded.valid_after, valid_before = excluded.valid_before,
          signature = excluded.signature
        where not exists (select from batch_item i where i.transfer_id in (transfer.id, transfer.fee_of) and i.active)
          and exists (
            select from submission s left join batch b on b.id = s.batch_id
            where s.id = transfer.submission_id
              and (s.id = excluded.submission_id or s.failure_code is not null or b.state = 'closed')
          )
      returning id`
    if (!transfer) throw new TransferInProgress(`the transfer at ${position} is part of another submission`)
    inserted.set(position, transfer.id)
  }
  // The fee of a transfer that came back without it is on its own.
  await sql`
    update transfer set fee_of = null
    where fee_of = any(${[...inserted.values()].map(String)}::bigint[]) and submission_id <> ${row.id}`
}

/** Whether a submission waits for a wallet. */
export async function isSubmissionWaiting(sql: Queryable, { chainId, token }: QueueScope): Promise<boolean> {
  const rows = await sql`
    select from submission
    where chain_id = ${chainId} and token = ${token} and batch_id is null and failure_code is null
    limit 1`
  return rows.length > 0
}

/**
 * Takes the oldest submission that waits, as a batch of its own with trigger `direct`. One whose payments are all in an
 * open batch already is that batch's. One call, see migrations/0001_schema.sql.
 */
export async function claimSubmission(
  sql: Queryable,
  lease: Lease,
  { token, batchId }: { token: Address; batchId: Hex },
): Promise<BatchRow | null> {
  const { chainId, address, holder, fence } = lease
  const [row] = await sql<BatchRow[]>`
    select ${batchColumns(sql, 'claimed')}
    from claim_submission(${chainId}, ${address}, ${holder}, ${fence}, ${token}, ${batchId}) claimed`
  // The statement doesn't see what the function wrote.
  return row ? { ...row, isSubmission: true } : null
}
