import { afterEach, beforeEach, expect, test } from 'vitest'
import { createTestDatabase } from '../test/support/database.ts'
import { type Database, openDatabase } from './database.ts'
import { migrate, readSchemaState, UnknownMigrations } from './migrate.ts'

let sql: Database
beforeEach(async () => {
  sql = openDatabase({ url: await createTestDatabase(), applicationName: 'test' })
})
afterEach(() => sql.end())

const tables = async () =>
  (await sql`select from information_schema.tables where table_schema = 'tollkeeper'`).count

test('default: an empty database gets the schema, once', async () => {
  const before = await readSchemaState(sql)
  expect(before).toEqual({ applied: [], unknown: [], pending: ['0001_schema.sql'] })
  expect(await tables()).toBe(0)
  expect(await migrate(sql)).toEqual(['0001_schema.sql'])
  expect(await migrate(sql)).toEqual([])
  expect(await readSchemaState(sql)).toEqual({ applied: ['0001_schema.sql'], unknown: [], pending: [] })
})

test('behavior: of processes that start together, one migrates and the others wait for it', async () => {
  const applied = await Promise.all([migrate(sql), migrate(sql), migrate(sql)])
  expect(applied.flat()).toEqual(['0001_schema.sql'])
})

test('error: on a database that a newer version changed, nothing starts and nothing changes', async () => {
  await migrate(sql)
  await sql`insert into migration (name) values ('9998_later.sql'), ('9999_latest.sql')`
  // The later version also has one that we lack and we have one that it lacks: refused before anything is applied.
  await sql`delete from migration where name = '0001_schema.sql'`
  const count = await tables()
  const refusal = await migrate(sql).catch((error: unknown) => error)
  expect(refusal).toBeInstanceOf(UnknownMigrations)
  expect(String(refusal)).toMatch(/9998_later\.sql, 9999_latest\.sql\. Start the version that made them/)
  expect(await tables()).toBe(count)
  expect(await readSchemaState(sql)).toMatchObject({ pending: ['0001_schema.sql'] })
})
