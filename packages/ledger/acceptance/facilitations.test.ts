import { expect, test } from 'vitest'
import { useDatabase } from '../../../test/support/database.ts'
import { seedTransfer, storeCandidates, toCandidate } from '../../../test/support/seedPayments.ts'
import { releaseReservations } from './facilitations.ts'

const sql = await useDatabase()
const now = new Date()
const until = now.getTime() - 1

test('behavior: deletes lapsed reservations, 200 at a time, except those that another transaction has locked', async () => {
  await sql.unsafe(`
    create table deletion (count bigint);
    create function count_deletions() returns trigger language plpgsql as $$
      begin insert into tollkeeper.deletion select count(*) from gone having count(*) > 0; return null; end $$;
    create trigger count_deletions after delete on payment referencing old table as gone
      for each statement execute function count_deletions()`)
  const lapsed = () => toCandidate({ source: 'facilitator', first: { stage: 'reserved', until } })
  await storeCandidates(sql, Array.from({ length: 450 }, lapsed))
  const young = await seedTransfer(sql, {
    source: 'facilitator',
    first: { stage: 'reserved', until: now.getTime() + 60_000 },
  })
  const [held] = await sql<[{ id: string }]>`select payment_id as id from queue order by payment_id limit 1`
  await sql.begin(async (other) => {
    await other`select from queue where payment_id = ${held.id} for update`
    expect(await releaseReservations(sql, now)).toBe(449)
  })
  const deletions = await sql<{ count: bigint }[]>`select count from deletion`
  expect(deletions.map(({ count }) => Number(count))).toEqual([200, 200, 49])
  expect(await releaseReservations(sql, now)).toBe(1)
  const left = await sql`select payment_id as id from queue`
  expect([...left]).toEqual([{ id: young.paymentId }])
})

test('behavior: deleting a payment finds its webhook messages with an index', async () => {
  await sql.begin(async (tx) => {
    await tx`set local enable_seqscan = off`
    const plan = await tx<{ 'QUERY PLAN': string }[]>`
      explain select from only outbox where payment_id = 'pay_none' for key share`
    expect(plan.map((line) => line['QUERY PLAN']).join('\n')).toContain('outbox_once')
    const [first] = await tx`
      select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
      where i.indexrelid = 'outbox_once'::regclass`
    // If the index began with another column, Postgres before version 18 would read the whole index.
    expect(first).toEqual({ attname: 'payment_id' })
  })
})
