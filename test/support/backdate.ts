import type { Database, Queryable } from '@tollkeeper/ledger/store/database'

/** Changes an accepted payment, which only a test may do: triggers make payments immutable. */
async function rewrite(sql: Database, change: (tx: Queryable) => Promise<unknown>): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`
    await change(tx)
  })
}

/** Moves the acceptance of a payment into the past. */
export async function backdate(
  sql: Database,
  { paymentId }: { paymentId: string },
  earlierMs: number,
): Promise<void> {
  await rewrite(sql, async (tx) => {
    const by = tx`${earlierMs}::float8 * interval '1 millisecond'`
    await tx`
      update payment set accepted_at = accepted_at - ${by}, challenged_at = challenged_at - ${by} where id = ${paymentId}`
    await tx`update queue set accepted_at = accepted_at - ${by} where payment_id = ${paymentId}`
    await tx`update payment_result set accepted_at = accepted_at - ${by} where payment_id = ${paymentId}`
  })
}

/**
 * Returns a recent time, or a time yesterday on the first of a month. So everything that a test moves back by `ageMs` is in one
 * month.
 */
export function withinMonth(): { month: string; time: Date; ageMs: number } {
  const now = new Date()
  const ageMs = now.getUTCDate() === 1 ? 86_400_000 : 600_000
  const time = new Date(now.getTime() - ageMs)
  return { month: time.toISOString().slice(0, 7), time, ageMs }
}
