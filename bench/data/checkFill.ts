import { summarisePayments } from '#api/portal/revenue/summarise'
import type { Database } from '#ledger/database'
import { createRetention } from '#ledger/retention'
import { retentionDays } from './fillViews.ts'

/** Throws where retention would delete something of what was filled, or the filled tables lack what it would have left. */
export async function checkRetention(sql: Database, now: Date): Promise<void> {
  const count = async () => {
    const [row] = await sql<[{ kept: number; missing: number }]>`
      select (select count(*)::int from presentation) as kept, (
        select count(*)::int from payment p
        where (concluded_at is null or concluded_at >= ${new Date(now.getTime() - retentionDays * 86_400_000)})
          and not exists (select from presentation where payment_id = p.id)
      ) as missing`
    return row
  }
  const { kept, missing } = await count()
  const step = createRetention(sql, { days: retentionDays, now: () => now.getTime() })
  while ((await step()) === 'busy');
  const left = await count()
  if (missing > 0 || left.kept !== kept) {
    throw new Error(`${missing} presentations are missing, and retention left ${left.kept} of ${kept}`)
  }
}

const sums = ['revenue', 'payer_revenue', 'settlement_time'] as const

/** Throws where the filled sums aren't what the system itself makes of the filled payments. */
export async function checkSums(sql: Database): Promise<void> {
  await sql`create schema filled`
  for (const table of sums) {
    await sql`create table filled.${sql(table)} as table ${sql(table)}`
    await sql`truncate ${sql(table)}`
  }
  await sql`create table filled.payment as table payment`
  await sql`update payment set summarised = null, settlement_seconds = null`
  while ((await summarisePayments(sql, { limit: 2_000 })) > 0);
  for (const table of [...sums, 'payment'] as const) {
    const [row] = await sql<[{ differing: number }]>`
      select count(*)::int as differing from (
        (table ${sql(table)} except all table filled.${sql(table)})
        union all
        (table filled.${sql(table)} except all table ${sql(table)})
      ) d`
    if (row.differing > 0) throw new Error(`${table}: ${row.differing} rows differ from the system's own`)
  }
  await sql`drop schema filled cascade`
}
