import type { Queryable } from './database.ts'
import { halves } from './halves.ts'

/** Nothing is left to do for what is still active in a batch that is about to be closed as settled. */
export async function concludeBatchPayments(sql: Queryable, batchId: bigint, now: Date): Promise<void> {
  // The batch's closing lets go of them in any case: said here already, it costs no second write.
  await sql`
    update payment set concluded_at = ${now}, next_attempt_at = null, lookup_requested_at = null, is_claimed = false
    where concluded_at is null
      and id in (select payment_id from batch_item where batch_id = ${batchId} and active and payment_id is not null)`
}

/**
 * Concludes the payments that somebody else settled, or that left their batch settled in the end: everything the index
 * or the evidence has up to `safeBlock` and that was not looked at before.
 *
 * @returns how many payments were concluded.
 */
export async function sweepSettled(
  sql: Queryable,
  scope: { chainId: number },
  safeBlock: bigint,
  now: Date,
): Promise<number> {
  const { chainId } = scope
  const [acted] = await sql<{ sweptBlock: bigint }[]>`
    insert into acted_block (chain_id, block_number) values (${chainId}, 0)
    on conflict (chain_id) do update set block_number = acted_block.block_number
    returning swept_block as "sweptBlock"`
  if (!acted || safeBlock <= acted.sweptBlock) return 0
  const rows = await sql`
    update payment p set concluded_at = ${now}, next_attempt_at = null, lookup_requested_at = null
    from (
      select distinct a.payment_id
      from signed_authorization a
      join (
        select chain_id, token, authorizer, nonce from indexer.authorization
        where chain_id = ${chainId} and block_number > ${acted.sweptBlock} and block_number <= ${safeBlock}
        union
        select chain_id, token, authorizer, nonce from evidence
        where chain_id = ${chainId} and block_number > ${acted.sweptBlock} and block_number <= ${safeBlock}
      ) seen using (chain_id, token, authorizer, nonce)
    ) touched
    where p.id = touched.payment_id and p.concluded_at is null and p.voided_at is null
      and not exists (select from batch_item i where i.payment_id = p.id and i.active)
      and not exists (
        select from ${halves(sql)} h where h.payment_id = p.id and h.state <> 'settled'
      )
    returning p.id`
  await sql`update acted_block set swept_block = ${safeBlock} where chain_id = ${chainId}`
  return rows.length
}
