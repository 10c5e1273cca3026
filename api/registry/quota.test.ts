import { expect, test } from 'vitest'
import { useDatabase } from '../../test/support/database.ts'
import { countQuota, dropOldQuotas } from './quota.ts'

const sql = await useDatabase()
const hour = Date.UTC(2027, 0, 1, 12)
const windowMs = 3_600_000

const count = (now: number) =>
  countQuota(sql, { counted: 'address', limit: 2, windowMs, what: 'registrations an hour' }, now).then(
    () => 'admitted',
    ({ code }: { code: string }) => code,
  )

test('default: a window contains its first moment and ends before the next window’s first moment', async () => {
  expect(await count(hour - 1)).toBe('admitted')
  expect([await count(hour), await count(hour + windowMs - 1)]).toEqual(['admitted', 'admitted'])
  expect(await count(hour + windowMs - 1)).toBe('rate_limited')
  expect(await count(hour + windowMs)).toBe('admitted')
})

test('behavior: a count is deleted once its window is over, not before', async () => {
  await sql`delete from quota`
  expect([await count(hour), await count(hour)]).toEqual(['admitted', 'admitted'])
  await dropOldQuotas(sql, hour + windowMs - 1)
  expect(await count(hour + windowMs - 1)).toBe('rate_limited')
  await dropOldQuotas(sql, hour + windowMs)
  expect(await sql`select from quota`).toHaveLength(0)
})

test('behavior: skips an expired count that another transaction has locked, and does not wait for it', async () => {
  await sql`delete from quota`
  await count(hour)
  await sql.begin(async (other) => {
    await other`select from quota for update`
    await sql.begin(async (tx) => {
      await tx`set local lock_timeout = '1s'`
      await dropOldQuotas(tx, hour + windowMs)
    })
  })
  expect(await sql`select from quota`).toHaveLength(1)
  await dropOldQuotas(sql, hour + windowMs)
  expect(await sql`select from quota`).toHaveLength(0)
})
