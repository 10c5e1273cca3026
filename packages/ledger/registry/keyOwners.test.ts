import { expect, test } from 'vitest'
import { createKeyOwners } from './keyOwners.ts'

test('behavior: concurrent requests with the same key share one query, and only one of them calls `beforeQuery`', async () => {
  const { promise, resolve } = Promise.withResolvers<string>()
  let queries = 0
  let counted = 0
  const find = () => {
    queries++
    return promise
  }
  const owners = createKeyOwners(find, 5_000, () => 0)
  const asked = Array.from({ length: 900 }, () => owners.ownerOf('key', () => void counted++))
  resolve('owner')
  expect(new Set(await Promise.all(asked))).toEqual(new Set(['owner']))
  expect({ queries, counted }).toEqual({ queries: 1, counted: 1 })
})
