import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { utcDay } from '@tollkeeper/sdk/protocol/time'
import type { Hex } from 'viem'
import type { Queryable } from '../store/database.ts'
import { feeOf } from './queue.ts'

// Gas money for payments whose fees don't cover their gas: see `gas_draw` in packages/ledger/migrations/0001_schema.sql.

/** Maximum USDC base units that may be drawn per UTC day. */
export type GasLimits = {
  /** The operator's budget on a network for fees that don't cover their gas; null: unlimited. */
  budget: bigint | null
  /** The allowance that all providers without a grant share for payments without a fee. Refunds have a separate pool of the same amount. */
  common: bigint
}

export type GasWant = {
  paymentId: string
  amount: bigint
  /** Whether the operator's budget pays, because the payment has a fee that doesn't cover its gas. */
  fromBudget: boolean
}

/**
 * Reserves amounts for payments that are about to be settled. A new amount replaces the unspent part of an earlier reservation. Earlier payments in
 * `wants` are served first.
 *
 * @returns the payments that were covered.
 */
export async function drawGas(
  sql: Queryable,
  chainId: number,
  wants: readonly GasWant[],
  { budget, common }: GasLimits,
  now: Date,
): Promise<Set<string>> {
  if (wants.length === 0) return new Set()
  const ids = wants.map(({ paymentId }) => paymentId)
  // Lock all payments before any row of gas_draw. Code that ends a payment locks in the same order, so the two can't deadlock.
  const rows = await sql<{ id: string; isDrawn: boolean }[]>`
    with locked as materialized (
      select payment_id, gas_drawer from queue where payment_id = any(${ids}::text[]) order by payment_id for update
    )
    select want.id, draw_gas(want.id,
        case when want.from_budget then ${`budget:${chainId}`} else source.drawer end,
        case when want.from_budget then ${budget}::numeric else source.most end,
        want.amount, ${utcDay(now)}, r.provider_id) as "isDrawn"
    from unnest(${ids}::text[], ${wants.map((want) => `${want.amount}`)}::text[]::numeric[],
      ${wants.map((want) => `${want.fromBudget}`)}::text[]::boolean[]) with ordinality as want (id, amount, from_budget, place)
    join locked q on q.payment_id = want.id
    left join facilitation f on f.payment_id = want.id
    left join refund r on r.payment_id = want.id
    cross join lateral gas_source(coalesce(f.provider_id, r.provider_id, q.gas_drawer), ${common}, ${chainId},
      case when r.payment_id is null then 'common' else 'refunds' end) source
    order by want.place`
  return new Set(rows.flatMap(({ id, isDrawn }) => (isDrawn ? id : [])))
}

/**
 * Checks that the gas of a submission's transaction is paid for: by the submission's fees, its caller's grant, or the common allowance. Call it
 * in the database transaction that stores the submission, and roll back if it throws.
 *
 * @param cost the cost of a transaction that contains only this submission, in USDC base units.
 * @param gasPerFee 0 if any fee above 0 covers any cost.
 * @throws {BaseError} `gas_not_covered`
 */
export async function coverSubmission(
  tx: Queryable,
  key: Hex,
  {
    cost,
    gasPerFee,
    providerId,
    common,
  }: {
    cost: { expected: bigint; most: bigint }
    gasPerFee: bigint
    providerId: string | null
    common: bigint
  },
  now: Date,
): Promise<void> {
  const [paid] = await tx<[{ id: string | null; chainId: number; fees: bigint | null; left: bigint | null }]>`
    select min(q.payment_id) as id, min(p.chain_id) as "chainId", sum(${feeOf(tx)}) as fees, sum(q.gas_reserved - q.gas_spent) as left
    from queue q join payment p on p.id = q.payment_id where q.submission = ${key}`
  if (paid.id === null) return
  const fees = paid.fees ?? 0n
  if (cost.expected <= fees || (gasPerFee === 0n && fees > 0n)) return
  if (cost.most <= fees + (paid.left ?? 0n)) return
  const [drawn] = await tx<[{ isDrawn: boolean }]>`
    select draw_gas(${paid.id}, source.drawer, source.most, ${cost.most - fees}, ${utcDay(now)}, null) as "isDrawn"
    from gas_source(${providerId}, ${common}, ${paid.chainId}, 'common') source`
  if (!drawn.isDrawn) throw new BaseError('gas_not_covered')
}

/**
 * Books the cost of a mined transaction for the payments that drew gas money. If the payments aren't retried, it also releases the rest of their
 * reservations. Each payment bears a share of the cost. If its fee doesn't cover the share, the difference is charged to the grant, allowance or
 * budget that the payment drew from. Costs that neither draws nor fees cover come from the operator's budget: sweeps, a price that rose in the
 * meantime, a transaction with nothing left to settle, and a transaction that was mined, dropped by a reorg and then reverted.
 *
 * @param cost USDC base units.
 */
export async function bookGas(
  tx: Queryable,
  batchId: bigint,
  { cost, isOver, now }: { cost: bigint; isOver: boolean; now: Date },
): Promise<void> {
  const [beyond] = await tx<[{ drawer: string; amount: bigint }?]>`
    with own as materialized (
      select q.payment_id, q.gas_drawer, q.gas_day, q.gas_reserved, q.gas_spent,
        case when ${isFeeLost(tx)} then 0 else ${feeOf(tx)} end as fee,
        b.lane = 'submission' and coalesce(q.gas_drawer, '') not like 'budget:%' as is_together,
        case when p.fee_amount > 0 and p.splitter is null then 2 else 1 end as authorizations
      from queue q join payment p on p.id = q.payment_id join batch b on b.id = q.batch_id
      where q.batch_id = ${batchId}
    ), share as (
      select own.*, sum(authorizations) over () as all_authorizations, sum(fee) over () as all_fees from own
    ), booked as (
      select payment_id, gas_drawer, gas_day, gas_reserved as before, gas_spent + added as spent, added
      from share cross join lateral (
        select case
          when is_together then greatest(0, ${cost} - all_fees)
          else greatest(0, ceil(${cost}::numeric * authorizations / all_authorizations) - fee)
        end as added
      ) cost
      where gas_drawer is not null
    ), noted as (
      -- Note what was added, so that a reorg can revert it (markUnmined).
      update batch_item i set gas = booked.added, gas_drawer = booked.gas_drawer, gas_day = booked.gas_day from booked
      where i.batch_id = ${batchId} and i.payment_id = booked.payment_id
    ), kept as (
      update queue q set gas_spent = booked.spent,
        gas_reserved = case when ${isOver} then booked.spent else greatest(booked.before, booked.spent) end
      from booked where q.payment_id = booked.payment_id
      returning booked.gas_drawer, booked.gas_day, q.gas_reserved - booked.before as change
    ), drawn as (
      update gas_draw d set drawn = d.drawn + kept.change
      from (select gas_drawer, gas_day, sum(change) as change from kept group by 1, 2) kept
      where d.drawer = kept.gas_drawer and d.day = kept.gas_day
    )
    select 'budget:' || b.chain_id as drawer, left_over.amount
    from batch b cross join (
      select ${cost} - coalesce(sum(fee), 0) - (select coalesce(sum(added), 0) from booked) as amount from share
    ) left_over
    where b.id = ${batchId} and left_over.amount > 0`
  if (beyond === undefined) return
  await tx`
    with noted as (
      update transaction set beyond = ${beyond.amount} where batch_id = ${batchId} and mined_block is not null
    )
    insert into gas_draw as d (day, drawer, drawn) values (${utcDay(now)}, ${beyond.drawer}, ${beyond.amount})
    on conflict (day, drawer) do update set drawn = d.drawn + excluded.drawn`
}

/** Returns whether the operator's budget of a network and UTC day has this amount left; a null budget is unlimited. */
export async function isInBudget(
  sql: Queryable,
  chainId: number,
  { amount, budget, now }: { amount: bigint; budget: bigint | null; now: Date },
): Promise<boolean> {
  if (budget === null) return true
  const rows = await sql`
    select from gas_draw
    where day = ${utcDay(now)} and drawer = ${`budget:${chainId}`} and drawn + ${amount} > ${budget}`
  return rows.length === 0 && amount <= budget
}

/** Amounts that a provider's refunds may draw for gas on a UTC day, in USDC base units. */
export type RefundGas = {
  /** True if the refunds draw from the provider's own grant; false if they draw from the provider's share of the common pool for refunds. */
  hasGrant: boolean
  most: bigint
  left: bigint
}

/** Reads how much gas money is left today for a provider's refunds on a network. */
export async function readRefundGas(
  sql: Queryable,
  { providerId, chainId, common, now }: { providerId: string; chainId: number; common: bigint; now: Date },
): Promise<RefundGas> {
  const [row] = await sql<[RefundGas]>`
    select has_grant as "hasGrant", most, remaining as left
    from refund_gas_left(${providerId}, ${common}, ${chainId}, ${utcDay(now)})`
  return row
}

/** Reads how much is left today, in USDC base units, in a network's pool of gas money for refunds of providers without a grant. */
export async function readRefundPool(
  sql: Queryable,
  { chainId, common, now }: { chainId: number; common: bigint; now: Date },
): Promise<bigint> {
  const [row] = await sql<[{ left: bigint }]>`
    select greatest(0, source.most - coalesce(d.drawn, 0)) as left
    from gas_source(null, ${common}, ${chainId}, 'refunds') source
    left join gas_draw d on d.day = ${utcDay(now)} and d.drawer = source.drawer`
  return row.left
}

/** Returns the condition that the fee of the queue's row `q` is a separate half that can't be settled any more. */
function isFeeLost(sql: Queryable) {
  return sql`exists (
    select from authorization_event e where e.payment_id = q.payment_id and e.half = 1 and e.state <> 'settled'
  )`
}
