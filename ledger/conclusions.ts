import type { Address, Hex } from 'viem'
import type { Queryable } from './database.ts'
import type { Conclusion, PaymentFacts } from './decideConclusion.ts'
import { type HalfState, halves, signedFor } from './halves.ts'

/** What a network's payments are read and written by. */
export type SweepScope = { chainId: number; token: Address }

/** A payment that isn't concluded and stands in no batch, and its nonces, provider's first. */
export type OpenPayment = PaymentFacts & { paymentId: string; payer: Address; nonces: [Hex, Hex | null] }

/** Up to which block everything that was used or cancelled has been looked at. */
export async function readSweptBlock(sql: Queryable, chainId: number): Promise<bigint> {
  const [row] = await sql<{ block: bigint }[]>`
    select swept_block as block from acted_block where chain_id = ${chainId}`
  return row?.block ?? 0n
}

/** Unless evidence that was found late has lowered it meanwhile. */
export async function moveSweptBlock(
  sql: Queryable,
  chainId: number,
  from: bigint,
  to: bigint,
): Promise<void> {
  await sql`
    insert into acted_block as acted (chain_id, block_number, swept_block) values (${chainId}, 0, ${to})
    on conflict (chain_id) do update set swept_block = excluded.swept_block where acted.swept_block = ${from}`
}

/**
 * The payments about which something may have to be done: something of them was used or cancelled after the block `after`,
 * nothing of them is left to settle, or their time is over.
 *
 * @param blockTime Unix seconds, of the indexed head `upTo`: every block that could have settled the last ones was read.
 */
export async function readPaymentsToConclude(
  sql: Queryable,
  { chainId }: SweepScope,
  { after, upTo, blockTime }: { after: bigint; upTo: bigint; blockTime: bigint },
  limit: number,
): Promise<OpenPayment[]> {
  const seen = sql`chain_id = ${chainId} and block_number > ${after} and block_number <= ${upTo}`
  const isExpired = sql`chain_id = ${chainId} and valid_before <= ${blockTime} and concluded_at is null
    and lookup_requested_at is null and not is_claimed`
  return readOpenPayments(
    sql,
    sql`
      select a.payment_id as id
      from (
        select chain_id, token, authorizer, nonce from indexer.authorization where ${seen}
        union
        select chain_id, token, authorizer, nonce from evidence where ${seen}
      ) used ${signedFor(sql)}
      union
      select id from payment
      where chain_id = ${chainId} and spent_block is not null and concluded_at is null and failed_at is null
      union
      (select id from payment where ${isExpired} and failed_at is null and voided_at is null and spent_block is null
      order by valid_before limit ${limit})
      union
      (select id from payment where ${isExpired} and (failed_at is not null or voided_at is not null)
      order by valid_before limit ${limit})`,
  )
}

/** The same of chosen payments. */
export async function readChosenPayments(
  sql: Queryable,
  paymentIds: readonly string[],
): Promise<OpenPayment[]> {
  return readOpenPayments(sql, sql`select unnest(${[...paymentIds]}::text[]) as id`)
}

type OpenPaymentRow = Omit<OpenPayment, 'provider' | 'fee' | 'nonces'> & {
  providerState: HalfState
  providerUntil: bigint
  providerNonce: Hex
  feeState: HalfState | null
  feeUntil: bigint | null
  feeNonce: Hex | null
}

async function readOpenPayments(sql: Queryable, candidates: ReturnType<typeof sql>): Promise<OpenPayment[]> {
  const rows = await sql<OpenPaymentRow[]>`
    select p.id as "paymentId", p.payer, p.spent_block as "spentBlock", p.voided_at is not null as "isVoided",
      p.failed_at is not null as "isFailed", p.failure_code as "failureCode", half.*
    from (${candidates}) candidate
    join payment p on p.id = candidate.id
    cross join lateral (
      select max(h.block_number) as "lastBlock",
        max(h.state) filter (where h.half = 0) as "providerState", max(h.state) filter (where h.half = 1) as "feeState",
        max(h.valid_before) filter (where h.half = 0) as "providerUntil",
        max(h.valid_before) filter (where h.half = 1) as "feeUntil",
        max(h.nonce) filter (where h.half = 0) as "providerNonce", max(h.nonce) filter (where h.half = 1) as "feeNonce"
      from ${halves(sql)} h where h.payment_id = p.id
    ) half
    where p.concluded_at is null and not p.is_claimed`
  return rows.map(
    ({ providerState, providerUntil, providerNonce, feeState, feeUntil, feeNonce, ...payment }) => ({
      ...payment,
      provider: { state: providerState, validBefore: providerUntil },
      fee: feeState === null || feeUntil === null ? null : { state: feeState, validBefore: feeUntil },
      nonces: [providerNonce, feeNonce],
    }),
  )
}

/** A decision that is written by itself; `fail` and `unvoid` have functions of their own. */
export type WrittenConclusion = { payment: Pick<OpenPayment, 'paymentId' | 'lastBlock'> } & {
  conclusion: Extract<Conclusion, { action: 'spend' | 'reopen' | 'conclude' | 'wipe' }>
}

/** Writes decisions, in one statement; leaves out payments that were claimed or concluded since. */
export async function writeConclusions(
  sql: Queryable,
  written: readonly WrittenConclusion[],
  now: Date,
): Promise<void> {
  if (written.length === 0) return
  const rows = written.map(({ payment: { paymentId, lastBlock }, conclusion }) => ({
    id: paymentId,
    action: conclusion.action,
    block: lastBlock?.toString() ?? null,
    code: conclusion.action === 'conclude' ? conclusion.code : null,
  }))
  await sql`
    with decided as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as d (id text, action text, block bigint, code text)
    ), changed as (
      update payment p set
        spent_block = case when d.action = 'reopen' then null else coalesce(d.block, p.spent_block) end,
        concluded_at = case when d.action in ('conclude', 'wipe') then ${now}::timestamptz end,
        next_attempt_at = case when d.action in ('conclude', 'wipe') then null else p.next_attempt_at end,
        lookup_requested_at = null,
        failure_code = coalesce(d.code, p.failure_code)
      from decided d
      where p.id = d.id and p.concluded_at is null and not p.is_claimed
      returning p.id, d.action
    )
    delete from presentation where payment_id in (select id from changed where action = 'wipe')`
}

/**
 * Concludes what is still active in a batch of ours that is about to be closed as settled in `block`. A payment of which a
 * reorg gave back what somebody else had settled is left to the queue: the batch settled only the rest.
 */
export async function concludeBatchPayments(
  sql: Queryable,
  batchId: bigint,
  block: bigint,
  now: Date,
): Promise<void> {
  // The batch's closing lets go of them in any case: said here already, it costs no second write.
  await sql`
    update payment set concluded_at = ${now}, spent_block = ${block}, next_attempt_at = null,
      lookup_requested_at = null, is_claimed = false
    where concluded_at is null
      and id in (select payment_id from batch_item where batch_id = ${batchId} and active and payment_id is not null)
      and not exists (select from ${halves(sql)} h where h.payment_id = payment.id and h.state <> 'settled')`
}

/** Writes down in which block it was seen that a payment which has failed can't be settled any more. */
export async function setSpentBlock(sql: Queryable, paymentId: string, block: bigint): Promise<void> {
  await sql`update payment set spent_block = ${block} where id = ${paymentId}`
}
