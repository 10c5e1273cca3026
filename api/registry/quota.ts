import type { Queryable } from '@tollkeeper/ledger/store/database'
import { Refusal } from '../http/refusal.ts'

/** What is counted, most of it in a window of time, and the limit's name in the refusal. */
export type Quota = { counted: string; limit: number; windowMs: number; what: string }

/**
 * Counts within the transaction of the counted thing, so a failed one doesn't count, and no process admits more than the limit.
 * For rare things; requests have the rate limiter.
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

/** Deletes expired counts. Call it after {@link countQuota}, which makes two such transactions wait for each other. */
export async function dropOldQuotas(sql: Queryable, now: number): Promise<void> {
  await sql`delete from quota where ends_at <= ${new Date(now)}`
}
