import type { Queryable } from '#ledger/store/database'
import { Refusal } from '../http/refusal.ts'

/** What is counted, how often it may be in each window of time, and how the refusal names the limit. */
export type Quota = { counted: string; limit: number; windowMs: number; what: string }

/**
 * Counts in the transaction of what is counted: one that fails isn't, and no process lets one through that another has
 * counted already. For what is rare; requests have the rate limiter.
 *
 * @param now Unix milliseconds
 * @throws {Refusal} `rate_limited`
 */
export async function countQuota(
  sql: Queryable,
  { counted, limit, windowMs, what }: Quota,
  now: number,
): Promise<void> {
  const endsAt = (Math.floor(now / windowMs) + 1) * windowMs
  const [row] = await sql<[{ count: number }]>`
    insert into quota as q (ends_at, counted, count) values (${new Date(endsAt)}, ${counted}, 1)
    on conflict (ends_at, counted) do update set count = q.count + 1
    returning count`
  if (row.count <= limit) return
  throw new Refusal('rate_limited', `At most ${limit} ${what}`, {
    details: { retryAfter: Math.ceil((endsAt - now) / 1000) },
  })
}

/** Drops what counts no more. After {@link countQuota}, which has two such transactions wait for each other. */
export async function dropOldQuotas(sql: Queryable, now: number): Promise<void> {
  await sql`delete from quota where ends_at <= ${new Date(now)}`
}
