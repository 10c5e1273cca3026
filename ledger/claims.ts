import type { Address, Hex } from 'viem'
import type { Trigger } from '#protocol/settlement'
import { type BatchRow, batchColumns } from './batches.ts'
import type { Queryable } from './database.ts'
import { halves } from './halves.ts'
import { type Lease, LeaseLost } from './leases.ts'
import { isWanted } from './queue.ts'
import { settleMarginSeconds } from './settleMargin.ts'

// A claim is one statement: it holds no lock while anybody's host thinks, or stands still. What two keepers want at the
// same moment, one of them gets; the other one's claim leaves it out.

export type Claim = {
  batchId: Hex
  token: Address
  feeRecipient: Address
  trigger: Trigger
  /** Payments, the most urgent first. */
  paymentIds: readonly string[]
  /** Whether they are claimed as quarantined: those whose payers are quarantined since are left out, or in. */
  quarantined: boolean
}

export type Claimed = {
  /** null: nothing of it could be claimed. */
  batch: BatchRow | null
  /** Of which the chain, as far as it is indexed, leaves nothing to settle: settled, cancelled, or about to expire. */
  unsettleable: string[]
}

/**
 * Claims payments as a batch of a wallet, as far as they are still wanted and the index leaves something of them to
 * settle. A payment whose provider half was cancelled, or its nonce used for something else, is none: its fee alone is
 * never charged.
 *
 * @throws {LeaseLost} if the wallet is somebody else's now.
 */
export async function claimPayments(
  sql: Queryable,
  lease: Lease,
  { batchId, token, feeRecipient, trigger, paymentIds, quarantined }: Claim,
  now: Date,
): Promise<Claimed> {
  const [row] = await sql<
    (Omit<BatchRow, 'id'> & { id: bigint | null; isHeld: boolean; unsettleable: string[] | null })[]
  >`
    with held as materialized (
      select 1 as one from wallet_lease
      where chain_id = ${lease.chainId} and address = ${lease.address} and holder = ${lease.holder}
        and fence = ${lease.fence} and expires_at > clock_timestamp()
      for share
    ), wanted as materialized (
      select payment.id, payment.chain_id, payment.token, payment.payer, payment.quarantined
      from payment
      where payment.id in ${sql(paymentIds)} and ${isWanted(sql)} and exists (select from held)
      for update skip locked
    ), judged as materialized (
      select w.id, w.quarantined or payer.mined_failures > 0 as quarantined,
        (
          select bool_or(h.state = 'open'
              and h.valid_before > extract(epoch from ${now}::timestamptz) + ${settleMarginSeconds})
            and not bool_or(h.half = 0 and h.state in ('cancelled', 'foreign_use'))
          from ${halves(sql)} h where h.payment_id = w.id
        ) as settleable
      from wanted w
      join payer on payer.chain_id = w.chain_id and payer.token = w.token and payer.address = w.payer
    ), newly_quarantined as (
      update payment set quarantined = true
      from judged where payment.id = judged.id and judged.quarantined and not payment.quarantined
    ), chosen as materialized (
      select id from judged where settleable and quarantined = ${quarantined}
    ), made as (
      insert into batch (batch_id, chain_id, token, fee_recipient, trigger, wallet, fence)
      select ${batchId}, ${lease.chainId}, ${token}, ${feeRecipient}, ${trigger}, ${lease.address}, ${lease.fence}
      where exists (select from chosen)
      returning *
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
