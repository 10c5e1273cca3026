import type { Trigger } from '@tollkeeper/sdk/protocol/batchSettlement'
import type { Address, Hex } from 'viem'
import { halves } from '../facts/halves.ts'
import { payerOf } from '../queue/isolation.ts'
import type { Lane } from '../queue/lanes.ts'
import { isIsolated, isUnbatched, moves } from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'
import { settleMarginSeconds } from '../store/settleMargin.ts'
import { type BatchRow, batchColumns } from './batches.ts'
import { isHolder, type Lease, LeaseLost } from './leases.ts'

// If two keepers claim the same payment, one of them gets it and the other's claim skips it, because claims never wait for a payment's lock. A claim
// may wait for another claim that draws gas from the same allowance. If a host freezes during a claim, the database ends its transaction after
// `idleInTransactionMs` and releases its locks.

export type Claim = {
  batchId: Hex
  token: Address
  feeRecipient: Address
  trigger: Trigger
  /** The lane `isolated` gets only isolated payments. The other lanes get none of them. */
  lane: Lane
  /** Payments, the most urgent first. The lane `submission` claims all of them or none. */
  paymentIds: readonly string[]
}

export type Claimed = {
  /** Null if nothing could be claimed. */
  batch: BatchRow | null
  /** Payments that can't be settled any more, according to the record: they are settled, cancelled, or about to expire. */
  unsettleable: string[]
}

/**
 * Locks the given payments, except those in a batch, until the transaction ends. All transactions lock payments in the same order.
 *
 * @returns the locked payments. Those that another transaction has locked are skipped.
 */
export async function lockUnbatched(tx: Queryable, paymentIds: readonly string[]): Promise<Set<string>> {
  const rows = await tx<{ id: string }[]>`
    select q.payment_id as id from queue q where q.payment_id = any(${[...paymentIds]}::text[]) and ${isUnbatched(tx)}
    order by q.payment_id for update skip locked`
  return new Set(rows.map(({ id }) => id))
}

/**
 * Claims payments for a new batch of a wallet. Payments that no longer wait, or that the record shows as settled, are left out. So are payments whose
 * provider half was cancelled or whose nonce was used for something else, because a fee is never charged alone.
 *
 * @throws {LeaseLost} if another holder has taken over the wallet.
 */
export async function claimPayments(
  sql: Queryable,
  lease: Lease,
  { batchId, token, feeRecipient, trigger, lane, paymentIds }: Claim,
  now: Date,
): Promise<Claimed> {
  const areIsolated = lane === 'isolated'
  const least = lane === 'submission' ? paymentIds.length : 1
  const [row] = await sql<
    (Omit<BatchRow, 'id'> & { id: bigint | null; isHeld: boolean; unsettleable: string[] | null })[]
  >`
    with held as materialized (
      select 1 as one from wallet_lease where ${isHolder(sql, lease)} for share
    ), wanted as materialized (
      select q.payment_id as id, q.payer, ${isIsolated(sql)} as was_isolated
      from queue q
      where q.payment_id = any(${[...paymentIds]}::text[]) and ${isUnbatched(sql)} and exists (select from held)
      for update skip locked
    ), judged as materialized (
      select w.id, not w.was_isolated and payer.mined_failures > 0 as is_new,
        w.was_isolated or payer.mined_failures > 0 and ${lane !== 'submission'} as is_isolated,
        (
          select bool_or(h.state = 'open'
              and h.valid_before > extract(epoch from ${now}::timestamptz) + ${settleMarginSeconds})
            and not bool_or(h.half = 0 and h.state in ('cancelled', 'foreign_use'))
          from ${halves(sql)} h where h.payment_id = w.id
        -- Skip a payment without signatures, because it would stop its whole batch. A deep reorg may reopen a payment whose signatures were deleted.
        ) and exists (select from presentation s where s.payment_id = w.id) as settleable
      from wanted w
      ${payerOf(sql, { chainId: lease.chainId, token }, sql`w.payer`)}
    ), chosen as materialized (
      select id from judged where settleable and is_isolated = ${areIsolated}
    ), set_apart as (
      update queue q set ${moves(sql).toIsolated}
      from judged where q.payment_id = judged.id and judged.is_new and judged.is_isolated
        and not exists (select from chosen where chosen.id = judged.id)
    ), made as (
      insert into batch (batch_id, chain_id, token, fee_recipient, trigger, lane, wallet, fence)
      select ${batchId}, ${lease.chainId}, ${token}, ${feeRecipient}, ${trigger}, ${lane}, ${lease.address}, ${lease.fence}
      where (select count(*) from chosen) >= ${least}
      returning *
    ), taken as (
      update queue q set ${moves(sql).toClaimed}, batch_id = made.id
      from made, chosen where q.payment_id = chosen.id
    ), items as (
      insert into batch_item (batch_id, position, payment_id)
      select made.id, row_number() over (order by given.position) - 1, given.id
      from made, unnest(${[...paymentIds]}::text[]) with ordinality as given (id, position)
      where given.id in (select id from chosen)
    )
    select ${batchColumns(sql, 'made')}, exists (select from held) as "isHeld",
      (select array_agg(id) from judged where settleable is not true) as unsettleable
    from (values (1)) as one (one) left join made on true`
  if (!row?.isHeld) throw new LeaseLost(lease)
  const { isHeld, unsettleable, ...batch } = row
  return { batch: batch.id === null ? null : (batch as BatchRow), unsettleable: unsettleable ?? [] }
}
