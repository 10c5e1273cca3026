import type { Queryable } from '@tollkeeper/ledger/store/database'
import { Refusal } from '../http/refusal.ts'

/** The counted thing, the limit per time window, and the text that names the limit in the refusal. */
export type Quota = { counted: string; limit: number; windowMs: number; what: string }

/**
 * Counts an action within the action's own transaction, so a failed action doesn't count, and all processes together admit no more than the limit.
 * For rare actions only; requests are counted by the rate limiter.
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

/** Deletes expired counts. It skips rows that another transaction has locked, so that it neither waits for that transaction nor deadlocks with it. */
export async function dropOldQuotas(sql: Queryable, now: number): Promise<void> {
  await sql`
    delete from quota where (ends_at, counted) in (
      select ends_at, counted from quota where ends_at <= ${new Date(now)} for update skip locked)`
}
