import { expect, test } from 'vitest'
import { useDatabase } from '../../test/support/database.ts'
import { until } from '../../test/support/until.ts'
import { createLogger } from './log.ts'
import { createRateLimiter } from './rateLimiter.ts'

const log = createLogger('test', 'silent')
const sql = await useDatabase()

test('default: allows each key exactly its limit of requests per minute', () => {
  let now = 59_000
  const limiter = createRateLimiter({ sql: null, log, now: () => now })
  const count = (key: string) => limiter.count(key, 2)
  expect([count('a'), count('a'), count('a')]).toEqual([
    { isAllowed: true, limit: 2, remaining: 1, resetSeconds: 1 },
    { isAllowed: true, limit: 2, remaining: 0, resetSeconds: 1 },
    { isAllowed: false, limit: 2, remaining: 0, resetSeconds: 1 },
  ])
  expect(count('b').isAllowed).toBe(true)
  now = 60_000
  expect(count('a')).toEqual({ isAllowed: true, limit: 2, remaining: 1, resetSeconds: 60 })
})

test('behavior: processes share their counts within about a second', async () => {
  const limit = 1_000_000
  const open = () => createRateLimiter({ sql, log, now: () => 600_000 })
  const [one, other] = [open(), open()]
  const readShared = async () => {
    const [row] = await sql<{ count: bigint }[]>`select count from request_count where key = 'shared'`
    return Number(row?.count ?? 0)
  }
  one.count('shared', limit)
  await until('the first process has shared its count', async () => (await readShared()) === 1)
  let own = 0
  await until('the second process counts more than its own', () => {
    own += 1
    return limit - other.count('shared', limit).remaining > own
  })
  expect(await readShared()).toBe(2)
})
