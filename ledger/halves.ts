import type { Address, Hex } from 'viem'
import type { Database, Queryable } from './database.ts'

/**
 * What the chain says of one half of a payment.
 *
 * - `settled`: the authorization was used and the Transfer paired with it is the one that was accepted
 * - `foreign_use`: the nonce was used by another authorization, or before the payment was accepted
 * - `cancelled`: the payer cancelled it (`authorizationState` is true then, too)
 * - `open`: neither is indexed
 */
export type HalfState = 'settled' | 'foreign_use' | 'cancelled' | 'open'

export type Half = {
  paymentId: string
  /** 0: provider, 1: platform fee. */
  half: 0 | 1
  authorizer: Address
  nonce: Hex
  state: HalfState
  txHash: string | null
  logIndex: number | null
  blockNumber: bigint | null
  blockHash: string | null
  /** Unix seconds. */
  blockTime: bigint | null
}

/**
 * The use or cancellation of the authorization `a` that is indexed, or else that the keeper found evidence of: a lateral
 * subquery of at most one row, to be named `seen`.
 */
export function seenUse(sql: Queryable) {
  return sql`(
    select 0 as source, i.state, i.recipient, i.value, i.tx_hash, i.log_index, i.block_number, i.block_hash,
      i.block_time
    from indexer.authorization i
    where i.chain_id = a.chain_id and i.token = a.token and i.authorizer = a.authorizer and i.nonce = a.nonce
    union all
    select 1, e.state, e.recipient, e.value, e.tx_hash, e.log_index, e.block_number, e.block_hash, e.block_time
    from evidence e
    where e.chain_id = a.chain_id and e.token = a.token and e.authorizer = a.authorizer and e.nonce = a.nonce
    order by source
    limit 1
  )`
}

/** {@link HalfState} of the authorization `a`, given the {@link seenUse} of it. The only place that says what is paid. */
export function halfState(sql: Queryable) {
  return sql`
    case
      when seen.state is null then 'open'
      when seen.state = 'cancelled' then 'cancelled'
      when seen.recipient = a.recipient and seen.value = a.value
        and (a.accepted_block is null or seen.block_number > a.accepted_block) then 'settled'
      else 'foreign_use'
    end`
}

/**
 * The settled query: signed authorizations joined with what the chain shows of them.
 *
 * A fragment for a `from` clause, with the columns of {@link Half} in snake_case; restrict it by `payment_id`.
 *
 * Ponder drops and creates its views anew when it deploys, so no view or function of ours may depend on them.
 */
export function halves(sql: Queryable) {
  return sql`(
    select a.payment_id, a.half, a.chain_id, a.token, a.authorizer, a.recipient, a.value,
      a.valid_after, a.valid_before, a.nonce, ${halfState(sql)} as state,
      seen.tx_hash, seen.log_index, seen.block_number, seen.block_hash, seen.block_time
    from signed_authorization a
    left join lateral ${seenUse(sql)} seen on true
  )`
}

/**
 * Joins the authorization `a` of ours that was `used` or cancelled. Looked up one by one: of a few new uses, a plan that
 * joins the tables would read all that was ever signed.
 */
export function signedFor(sql: Queryable) {
  return sql`cross join lateral (
    select payment_id from signed_authorization s
    where s.chain_id = used.chain_id and s.token = used.token and s.authorizer = used.authorizer
      and s.nonce = used.nonce
    offset 0
  ) a`
}

/**
 * Both halves of the payment `p` in one look: a lateral subquery of just one row.
 *
 * Columns: `provider` and `fee`, each a {@link HalfState}, `fee` null where there is none; of a settled one `provider_tx`,
 * `provider_time`, `fee_tx`; of the settled ones the later's `last_block` and `last_time`. What isn't selected of them costs nothing.
 */
export function bothHalves(sql: Queryable) {
  return sql`(
    select max(h.state) filter (where h.half = 0) as provider, max(h.state) filter (where ${carriesFee(sql)}) as fee,
      max(h.tx_hash) filter (where h.half = 0 and h.state = 'settled') as provider_tx,
      max(h.block_time) filter (where h.half = 0 and h.state = 'settled') as provider_time,
      max(h.tx_hash) filter (where ${carriesFee(sql)} and h.state = 'settled') as fee_tx,
      max(h.block_number) filter (where h.state = 'settled') as last_block,
      max(h.block_time) filter (where h.state = 'settled') as last_time
    from ${halves(sql)} h where h.payment_id = p.id
  )`
}

/** Whether the half `h` of the payment `p` carries its fee: the second one, or the one that pays a splitter. */
export function carriesFee(sql: Queryable) {
  return sql`h.half = case when p.splitter is null then 1 else 0 end`
}

/**
 * Whether the half `h` of a concluded payment can still move, as far as the index has come: not used, and not expired at the
 * indexed head. Whoever concluded the payment knew better, but an index that is empty or behind (it was deployed anew) must
 * not turn settled payments into failed ones where nobody would look again.
 */
export function isUndecided(sql: Queryable) {
  return sql`h.state = 'open' and h.valid_before > coalesce((
    select left(latest_checkpoint, 10)::bigint from indexer._ponder_checkpoint c
    where c.chain_id = h.chain_id), 0)`
}

/** The halves of one payment, provider's first; empty for an unknown id. */
export async function halvesOfPayment(sql: Database, paymentId: string): Promise<Half[]> {
  return sql<Half[]>`
    select payment_id as "paymentId", half, authorizer, nonce, state, tx_hash as "txHash", log_index as "logIndex",
      block_number as "blockNumber", block_hash as "blockHash", block_time as "blockTime"
    from ${halves(sql)} h
    where payment_id = ${paymentId}
    order by half`
}
