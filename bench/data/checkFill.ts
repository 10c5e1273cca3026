import { createRetention } from '#ledger/outcomes/retention'
import { endPayments } from '#ledger/queue/stages'
import type { Database } from '#ledger/store/database'
import { retentionDays } from './fillViews.ts'

/** Throws where retention would delete something of what was filled, or the filled tables lack what it would have left. */
export async function checkRetention(sql: Database, now: Date): Promise<void> {
  const count = async () => {
    const [row] = await sql<[{ kept: number; missing: number }]>`
      select (select count(*)::int from presentation) as kept, (
        select count(*)::int from payment p left join outcome o on o.payment_id = p.id
        where (o.final_at is null or o.final_at >= ${new Date(now.getTime() - retentionDays * 86_400_000)})
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

const endedAtOnce = 1_000
const checked = ['revenue', 'payer_revenue', 'settlement_time', 'outcome'] as const

/** Throws where the filled ends and sums aren't what the system itself makes of the filled payments and record. */
export async function checkSums(sql: Database, now: Date): Promise<void> {
  await sql`create schema filled`
  for (const table of checked) await sql`create table filled.${sql(table)} as table ${sql(table)}`
  await sql`
    update outcome set kind = 'spent', final_at = null, arrived = null, settlement_seconds = null where final_at is not null`
  await sql`truncate revenue, payer_revenue, settlement_time`
  const ids = (await sql<{ id: string }[]>`select payment_id as id from filled.outcome`).map(({ id }) => id)
  for (let from = 0; from < ids.length; from += endedAtOnce) {
    const endings = ids
      .slice(from, from + endedAtOnce)
      .map((paymentId) => ({ paymentId, kind: 'settled', code: null, isFinal: true }) as const)
    await endPayments(sql, endings, now)
  }
  await sql`
    update outcome o set ended_at = f.ended_at, final_at = f.final_at from filled.outcome f where f.payment_id = o.payment_id`
  for (const table of checked) {
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
