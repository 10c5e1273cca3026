import type { Database, Queryable } from '@tollkeeper/ledger/store/database'

/** Changes what was accepted, which only a test does: a payment is a fact, and refuses it. */
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
    await tx`update outcome set accepted_at = accepted_at - ${by} where payment_id = ${paymentId}`
  })
}

/** A little ago, or yesterday on the first of a month: what a test dates back by `ageMs` is all of one month. */
export function withinMonth(): { month: string; time: Date; ageMs: number } {
  const now = new Date()
  const ageMs = now.getUTCDate() === 1 ? 86_400_000 : 600_000
  const time = new Date(now.getTime() - ageMs)
  return { month: time.toISOString().slice(0, 7), time, ageMs }
}
