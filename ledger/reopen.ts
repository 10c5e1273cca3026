import type { Address } from 'viem'
import type { Database } from './database.ts'
import { deleteEvidence, type EvidenceRow, readUnconfirmedEvidence } from './evidence.ts'
import { halves } from './halves.ts'

/** How many payments are the keeper's work again: `settled` ones that had been concluded, and `failed` ones. */
export type Reopened = { settled: number; failed: number }

/**
 * Takes back what was concluded on the word of blocks that are gone, after a reorg deeper than the indexer's finality and
 * the rebuild that follows it. The index must have caught up, and no keeper may run: see docs/operations.md.
 *
 * Everything that the index doesn't show is opened; what evidence shows is concluded again by the first keeper that runs.
 */
export async function reopenUnsettled(database: Database, chainId: number): Promise<Reopened> {
  return database.begin(async (sql) => {
    const settled = await sql`
      update payment p set concluded_at = null
      where p.chain_id = ${chainId} and p.concluded_at is not null and p.voided_at is null and exists (
        select from signed_authorization a
        where a.payment_id = p.id and not exists (
          select from indexer.authorization i
          where i.chain_id = a.chain_id and i.token = a.token and i.authorizer = a.authorizer and i.nonce = a.nonce
        )
      )
      returning p.id`
    const failed = await sql`
      update payment p
      set failed_at = null, failure_code = null, attempts = 0, first_failed_at = null, next_attempt_at = null
      where p.chain_id = ${chainId} and p.failed_at is not null
        and p.failure_code in ('authorization_cancelled', 'authorization_used')
        and exists (
          select from ${halves(sql)} h where h.payment_id = p.id and h.half = 0 and h.state = 'open'
        )
      returning p.id`
    // What was summed up, notified or swept by these blocks is gone through again; what was said already isn't said twice.
    await sql`update acted_block set swept_block = 0, notified_block = 0 where chain_id = ${chainId}`
    return { settled: settled.length, failed: failed.length }
  }) as Promise<Reopened>
}

/**
 * Drops the evidence that stands in blocks that are gone, however deep it had been.
 *
 * @param isGone asks the chain about a row's block.
 */
export async function dropEvidence(
  database: Database,
  { chainId, token }: { chainId: number; token: Address },
  isGone: (row: EvidenceRow) => Promise<boolean>,
): Promise<number> {
  await database`update evidence set is_final = false where chain_id = ${chainId} and token = ${token} and is_final`
  let dropped = 0
  for (const row of await readUnconfirmedEvidence(database, chainId, token)) {
    if (!(await isGone(row))) continue
    await database.begin((sql) => deleteEvidence(sql, { ...row, chainId, token }))
    dropped += 1
  }
  return dropped
}

/** Wallets of the chain that a keeper holds at this moment. */
export async function readHeldWallets(database: Database, chainId: number): Promise<string[]> {
  const rows = await database<{ address: string }[]>`
    select address from wallet_lease where chain_id = ${chainId} and expires_at > clock_timestamp()`
  return rows.map(({ address }) => address)
}
