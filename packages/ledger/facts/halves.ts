import type { Address, Hex } from 'viem'
import type { Queryable } from '../store/database.ts'

/**
 * The record's state of one half of a payment (packages/ledger/facts/record.ts).
 *
 * - `settled`: the authorization was used, and its Transfer event shows the accepted transfer
 * - `foreign_use`: the nonce was used by another authorization, or before the payment was accepted
 * - `cancelled`: the payer cancelled it (`authorizationState` is also true in this case)
 * - `open`: nothing is recorded
 */
export type HalfState = 'settled' | 'foreign_use' | 'cancelled' | 'open'

/**
 * Joins signed authorizations with their recorded events. All code that needs to know what has settled uses this query.
 *
 * Returns a fragment for a `from` clause, which must be restricted by `payment_id`. `half` 0 is the provider's part, 1 the platform's fee; `state` is
 * a {@link HalfState}, and times are Unix seconds.
 */
export function halves(sql: Queryable) {
  return sql`(
    select a.payment_id, a.half, a.chain_id, a.token, a.authorizer, a.recipient, a.value,
      a.valid_after, a.valid_before, a.nonce, coalesce(e.state, 'open') as state,
      e.tx_hash, e.log_index, b.number as block_number, b.hash as block_hash, b.time as block_time
    from signed_authorization a
    left join authorization_event e on e.payment_id = a.payment_id and e.half = a.half
    left join recorded_block b on b.id = e.block_id
  )`
}

/**
 * Returns the {@link halves} of one payment, looked up by its id.
 *
 * Use this instead of {@link halves} if the query also restricts `valid_before`. The table's statistics don't contain the times of new authorizations
 * yet. So the planner expects to find only about one new authorization, and may search the whole table for each payment. `offset 0` makes it look
 * up the payment's id first.
 *
 * @param paymentId a column of the surrounding statement.
 */
export function halvesOf(sql: Queryable, paymentId: ReturnType<typeof halves>) {
  return sql`(select * from ${halves(sql)} half where half.payment_id = ${paymentId} offset 0)`
}

/** A parameter, or a column of the surrounding statement. */
type Sql<T> = T | ReturnType<typeof halves>

/** Returns the condition that the signed authorization `a` has this payer and nonce, by one look-up in its unique index. */
export function isAuthorization(
  sql: Queryable,
  { chainId, token }: { chainId: Sql<number>; token: Sql<Address> },
  { payer, nonce }: { payer: Sql<Address>; nonce: Sql<Hex> },
) {
  return sql`authorization_key(a.chain_id, a.token, a.authorizer, a.nonce)
    = authorization_key(${chainId}, ${token}, ${payer}, ${nonce})`
}

/**
 * Returns both halves of the payment `p` with one look-up: a lateral subquery of exactly one row.
 *
 * Columns that aren't selected cost nothing. The columns are:
 *
 * - `provider` and `fee`: the {@link HalfState} of each half; `fee` is null if the payment has no fee
 * - `settled`: the settled halves, in the format of settled_halves.sql
 * - `provider_tx`, `provider_time` and `fee_tx`: the transactions and the time by which the halves settled
 * - `last_block` and `last_time`: the block in which the last half settled
 * - `used_tx` and `used_time`: the transaction that used the provider's authorization, even if it made another transfer than the accepted transfer
 */
export function bothHalves(sql: Queryable) {
  return sql`(
    select max(h.state) filter (where h.half = 0) as provider, max(h.state) filter (where ${carriesFee(sql)}) as fee,
      coalesce(bit_or(case when h.half = 0 then 1 else 0 end | case when ${carriesFee(sql)} then 2 else 0 end)
        filter (where h.state = 'settled'), 0) as settled,
      max(h.tx_hash) filter (where h.half = 0 and h.state = 'settled') as provider_tx,
      max(h.block_time) filter (where h.half = 0 and h.state = 'settled') as provider_time,
      max(h.tx_hash) filter (where ${carriesFee(sql)} and h.state = 'settled') as fee_tx,
      max(h.block_number) filter (where h.state = 'settled') as last_block,
      max(h.block_time) filter (where h.state = 'settled') as last_time,
      max(h.tx_hash) filter (where h.half = 0 and h.state <> 'cancelled') as used_tx,
      max(h.block_time) filter (where h.half = 0 and h.state <> 'cancelled') as used_time
    from ${halves(sql)} h where h.payment_id = p.id
  )`
}

/** Returns the condition that the half `h` of the payment `p` contains its fee: it is the second half, or the one that pays a splitter. */
function carriesFee(sql: Queryable) {
  return sql`h.half = case when p.splitter is null then 1 else 0 end`
}

/** Returns the condition that the event `e` moved money of its payment, as signed or by another state of a tab. */
export function hasMoved(sql: Queryable) {
  return sql`(e.state = 'settled' or e.state = 'foreign_use' and exists (
    select from tab_line l where l.payment_id = e.payment_id and l.moved > 0
  ))`
}

/**
 * Returns the condition that the record has no event for one half of the queue's row `q`. `half` 0 is the provider's; 1 is the half that contains
 * the fee. The condition looks up each row, because a plan that joins the tables would read all authorizations ever signed.
 */
export function isOpen(sql: Queryable, half: 0 | 1) {
  const own = half === 0 ? sql`e.half = 0` : sql`(e.half = 1 or e.splitter is not null)`
  return sql`(select true from authorization_event e where e.payment_id = q.payment_id and ${own} limit 1) is null`
}

/** Returns the condition that all halves of the queue's row `q` have settled. Like {@link isOpen}, it looks up each row. */
export function isAllSettled(sql: Queryable) {
  return sql`(
    select true from ${halves(sql)} h where h.payment_id = q.payment_id and h.state <> 'settled' limit 1
  ) is null`
}

/**
 * Returns an expression that is true if a half of the payment with this id has settled, and null otherwise. Like {@link isOpen}, it looks up each
 * row.
 */
export function hasSettled(sql: Queryable, paymentId: ReturnType<typeof isOpen>) {
  return sql`(
    select true from authorization_event e where e.payment_id = ${paymentId} and e.state = 'settled' limit 1
  )`
}
