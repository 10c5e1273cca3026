import type { Trigger } from '@tollkeeper/sdk/protocol/settlement'
import type { Address, Hex } from 'viem'
import { halves } from '../facts/halves.ts'
import type { Lane } from '../queue/lanes.ts'
import { payerOf } from '../queue/quarantine.ts'
import { isApart, isLoose, moves } from '../queue/stages.ts'
import type { Queryable } from '../store/database.ts'
import { settleMarginSeconds } from '../store/settleMargin.ts'
import { type BatchRow, batchColumns } from './batches.ts'
import { isHolder, type Lease, LeaseLost } from './leases.ts'

// If two keepers want the same payment, one of them gets it, and the other's claim leaves it out: a claim waits for no lock of a
// payment. It may wait for another one that draws gas from the same source. A host that stands still during a claim keeps its locks until
// the database ends its transaction (`idleInTransactionMs`).

export type Claim = {
  batchId: Hex
  token: Address
  feeRecipient: Address
  trigger: Trigger
  /** The lane `quarantined` takes only quarantined payments, the others take none. */
  lane: Lane
  /** Payments, the most urgent first. The lane `direct` claims all of them, or none. */
  paymentIds: readonly string[]
}

export type Claimed = {
  /** null: nothing could be claimed. */
  batch: BatchRow | null
  /** Payments that can't be settled, as far as the chain is indexed: settled, cancelled, or about to expire. */
  unsettleable: string[]
}

/**
 * Locks payments that are in no batch until the transaction ends, in one order for all transactions.
 *
 * @returns the locked payments: those that another transaction holds are left to it.
 */
export async function lockUnbatched(tx: Queryable, paymentIds: readonly string[]): Promise<Set<string>> {
  const rows = await tx<{ id: string }[]>`
    select q.payment_id as id from queue q where q.payment_id = any(${[...paymentIds]}::text[]) and ${isLoose(tx)}
    order by q.payment_id for update skip locked`
  return new Set(rows.map(({ id }) => id))
}

/**
 * Claims payments as a wallet's batch, if they still wait and the index shows something of them to settle.
 * A payment whose provider half was cancelled, or its nonce used for something else, is left out: its fee alone is never
 * charged.
 *
 * @throws {LeaseLost} if another holder has the wallet now.
 */
export async function claimPayments(
  sql: Queryable,
  lease: Lease,
  { batchId, token, feeRecipient, trigger, lane, paymentIds }: Claim,
  now: Date,
): Promise<Claimed> {
  const areApart = lane === 'quarantined'
  const least = lane === 'direct' ? paymentIds.length : 1
  const [row] = await sql<
    (Omit<BatchRow, 'id'> & { id: bigint | null; isHeld: boolean; unsettleable: string[] | null })[]
  >`
    with held as materialized (
      select 1 as one from wallet_lease where ${isHolder(sql, lease)} for share
    ), wanted as materialized (
      select q.payment_id as id, q.payer, ${isApart(sql)} as was_apart
      from queue q
      where q.payment_id in ${sql(paymentIds)} and ${isLoose(sql)} and exists (select from held)
      for update skip locked
    ), judged as materialized (
      select w.id, not w.was_apart and payer.mined_failures > 0 as is_new,
        w.was_apart or payer.mined_failures > 0 and ${lane !== 'direct'} as is_apart,
        (
          select bool_or(h.state = 'open'
              and h.valid_before > extract(epoch from ${now}::timestamptz) + ${settleMarginSeconds})
            and not bool_or(h.half = 0 and h.state in ('cancelled', 'foreign_use'))
          from ${halves(sql)} h where h.payment_id = w.id
        -- One that a deep reorg took back after its signatures were deleted would stop its whole batch.
        ) and exists (select from presentation s where s.payment_id = w.id) as settleable
      from wanted w
      ${payerOf(sql, { chainId: lease.chainId, token }, sql`w.payer`)}
    ), chosen as materialized (
      select id from judged where settleable and is_apart = ${areApart}
    ), set_apart as (
      update queue q set ${moves(sql).toQuarantined}
      from judged where q.payment_id = judged.id and judged.is_new and judged.is_apart
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
