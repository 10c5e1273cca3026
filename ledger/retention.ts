import type { Queryable } from './database.ts'
import { firstIdAt } from './identifiers.ts'

/** The payment that a walk over all presentations, the oldest first, has come to; null: it begins. */
type RetentionPosition = string | null

/**
 * Deletes one page of what payments were presented with, where they were concluded before a time. Signatures are worth
 * nothing then: each authorization was used or cancelled, or has expired. What is lost is the answer to a request that is
 * sent again, with the same Idempotency-Key: from now on that is a replay. Receipts are signed anew for whoever asks.
 *
 * @param after where the page before this one ended; null: from the beginning.
 * @returns how many were deleted, and where the next page begins; null: that was the last.
 */
async function forgetPresentations(
  sql: Queryable,
  concludedBefore: Date,
  { after, limit }: { after: RetentionPosition; limit: number },
): Promise<{ forgotten: number; next: RetentionPosition }> {
  // Not by the time of the conclusion: an index of that would cost each payment an entry, and those that stay open for long
  // are few.
  const [row] = await sql<[{ seen: number; forgotten: number; last: string | null }]>`
    with page as (
      select payment_id from presentation
      where payment_id > ${after ?? ''} and payment_id < ${firstIdAt('pay', concludedBefore)}
      order by payment_id limit ${limit}
      for update skip locked
    ), gone as (
      delete from presentation
      where payment_id in (
        select page.payment_id from page join payment p on p.id = page.payment_id
        where p.concluded_at < ${concludedBefore}
      )
      returning payment_id
    )
    select (select count(*)::int from page) as seen, (select count(*)::int from gone) as forgotten,
      (select max(payment_id) from page) as last`
  const { seen, forgotten, last } = row
  return { forgotten, next: seen < limit ? null : last }
}

/** The same page after page, from the beginning again after the last one: a step of a background loop. */
export function createRetention(
  sql: Queryable,
  { days, now, limit = 1_000 }: { days: number; now: () => number; limit?: number },
): () => Promise<'busy' | 'idle'> {
  let after: RetentionPosition = null
  return async () => {
    const concludedBefore = new Date(now() - days * 86_400_000)
    const { forgotten, next } = await forgetPresentations(sql, concludedBefore, { after, limit })
    after = next
    return forgotten > 0 && next !== null ? 'busy' : 'idle'
  }
}
