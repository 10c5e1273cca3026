import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { readVersion } from '@tollkeeper/runtime/version'
import { beforeEach, expect, test } from 'vitest'
import {
  functionsFolder,
  own,
  ownFunctions,
  refusalOf,
  useMigrations,
} from '../../../test/support/migrations.ts'
import { describeSchema } from '../../../test/support/schemaContents.ts'
import { seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import type { Database } from './database.ts'
import { migrate, NewerFunctions, readSchemaState } from './migrate.ts'
import { isNewer } from './sqlFunctions.ts'

const version = readVersion()
const { openTestDatabase, openTheSame, createFolder } = useMigrations()
let sql: Database
beforeEach(async () => {
  sql = await openTestDatabase()
})

const shade = (result: string) => `
  create or replace function shade(colour text) returns text language sql immutable as $$
    select '${result} ' || colour
  $$;`
const readFunctions = async () => {
  const rows = await sql<{ name: string; checksum: string | null; version: string }[]>`
    select name, checksum, version from loaded_function`
  return new Map(rows.map(({ name, ...row }) => [name, row]))
}
const checksumOf = (text: string) => createHash('sha256').update(text).digest('hex')
const shadeOf = async (colour: string) => {
  const [row] = await sql<[{ shade: string }]>`select shade(${colour})`
  return row.shade
}

async function describeNew(): Promise<string[]> {
  const fresh = await openTestDatabase()
  await migrate(fresh)
  return describeSchema(fresh)
}

test('default: the database records the checksum of each function and the version that loaded it', async () => {
  await migrate(sql)
  const loaded = await readFunctions()
  expect([...loaded.keys()].sort()).toEqual(ownFunctions)
  const text = await readFile(new URL('accept_payments.sql', functionsFolder), 'utf8')
  expect(loaded.get('accept_payments.sql')).toEqual({ checksum: checksumOf(text), version })
})

test('behavior: an upgrade replaces only the functions whose text changed', async () => {
  const older =
    "create or replace function iso_time(at timestamptz) returns text language sql immutable as $$ select 'never' $$;"
  await migrate(sql, await createFolder(own, {}, { 'iso_time.sql': older }))
  await sql`update loaded_function set version = '0.0.9'`
  const oid = () => sql`select 'iso_time'::regproc::oid as oid, (select iso_time('epoch')) as told`
  const [before] = await oid()
  expect(before).toMatchObject({ told: 'never' })
  expect(await migrate(sql)).toEqual(['iso_time.sql'])
  const loaded = await readFunctions()
  const text = await readFile(new URL('iso_time.sql', functionsFolder), 'utf8')
  expect(loaded.get('iso_time.sql')).toEqual({ checksum: checksumOf(text), version })
  expect(loaded.get('settlement_bucket.sql')).toMatchObject({ version: '0.0.9' })
  // The function is replaced in place, so that a session that is about to call it still finds it.
  expect(await oid()).toEqual([{ oid: before?.oid, told: '1970-01-01T00:00:00.000Z' }])
})

test.each([
  ['argument', 'shade(dark boolean, colour text) returns text'],
  ['name of an argument', 'shade(color text) returns text'],
  ['type of the result', 'shade(colour text) returns varchar'],
])(
  'behavior: a function that is declared with another %s replaces the function of the same file',
  async (_, declaration) => {
    await migrate(sql, await createFolder(own, {}, { 'shade.sql': shade('dark') }))
    const text = `create or replace function ${declaration} language sql as $$ select 'light' $$;`
    await migrate(sql, await createFolder(own, {}, { 'shade.sql': text }))
    const functions = await sql`select prosrc from pg_proc where proname = 'shade'`
    expect([...functions]).toEqual([{ prosrc: " select 'light' " }])
  },
)

test('behavior: a function without a file is dropped with its triggers, and is created again if its file returns', async () => {
  const counting = `
    create or replace function count_codes() returns trigger language plpgsql as $$ begin return null; end $$;
    create trigger code_counted after insert on payer for each row execute function count_codes();`
  const folder = await createFolder(own, {}, { 'count_codes.sql': counting, 'shade.sql': shade('dark') })
  await migrate(sql, folder)
  const triggers = () =>
    sql`select tgname from pg_trigger where tgrelid = 'payer'::regclass and not tgisinternal`
  expect(await triggers()).toEqual([{ tgname: 'code_counted' }])
  await migrate(sql)
  expect(await describeSchema(sql)).toEqual(await describeNew())
  expect((await readFunctions()).get('shade.sql')).toEqual({ checksum: null, version })
  expect(await readSchemaState(sql)).toMatchObject({ functions: { load: [], drop: [] } })
  expect(await migrate(sql, folder)).toEqual(['count_codes.sql', 'shade.sql'])
  expect(await shadeOf('red')).toBe('dark red')
  expect(await triggers()).toEqual([{ tgname: 'code_counted' }])
})

test('behavior: drops a trigger that is no longer in its function’s file', async () => {
  await migrate(sql)
  const text = await readFile(new URL('count_batches.sql', functionsFolder), 'utf8')
  const shorter = text.slice(0, text.lastIndexOf('create trigger'))
  await migrate(sql, await createFolder(own, {}, { 'count_batches.sql': shorter }))
  const triggers = sql`select tgname from pg_trigger where tgrelid = 'settled_batch'::regclass and not tgisinternal`
  expect(await triggers).toEqual([{ tgname: 'batches_recorded' }])
  await migrate(sql)
  expect(await describeSchema(sql)).toEqual(await describeNew())
})

test('behavior: functions are loaded after the migrations that they need, and may call each other in any order', async () => {
  const first =
    'create or replace function a_first() returns text language sql as $$ select colour from b_second() $$;'
  const second =
    'create or replace function b_second() returns setof provider language sql as $$ select * from provider $$;'
  const later = { '9000_made_up.sql': "alter table provider add column colour text not null default 'red'" }
  await migrate(sql)
  const folder = await createFolder(own, later, { 'a_first.sql': first, 'b_second.sql': second })
  expect(await migrate(sql, folder)).toEqual(['9000_made_up.sql', 'a_first.sql', 'b_second.sql'])
  await seedProvider(sql, 1)
  expect(await sql`select a_first()`).toEqual([{ a_first: 'red' }])
})

test('behavior: replaces a function even if an earlier migration has fired its deferred trigger', async () => {
  await migrate(sql)
  await seedPayment(sql, { provider: await seedProvider(sql, 1) })
  await sql`insert into gas_draw (day, drawer, drawn) values ('2026-01-01', 'common', 100)`
  await sql`update queue set gas_drawer = 'common', gas_day = '2026-01-01', gas_reserved = 100`
  const text = await readFile(new URL('return_gas.sql', functionsFolder), 'utf8')
  const folder = await createFolder(
    own,
    { '9000_made_up.sql': 'delete from queue' },
    { 'return_gas.sql': `${text}-- changed` },
  )
  expect(await migrate(sql, folder)).toEqual(['9000_made_up.sql', 'return_gas.sql'])
  expect(await sql`select drawn from gas_draw`).toEqual([{ drawn: 0n }])
})

test('behavior: if processes start together with a changed function, only one of them loads it', async () => {
  await migrate(sql)
  const folder = await createFolder(own, {}, { 'shade.sql': shade('dark') })
  const others = await Promise.all([openTheSame(sql), openTheSame(sql)])
  const loaded = await Promise.all([sql, ...others].map((database) => migrate(database, folder)))
  expect(loaded.flat()).toEqual(['shade.sql'])
})

test.each([
  [
    'a body with an unknown table',
    'select colour from colours',
    /function shade failed, and all changes were rolled back: .*colours/,
  ],
  [
    'a body that isn’t SQL',
    'select select',
    /function shade failed, and all changes were rolled back: syntax error/,
  ],
])('error: rejects %s and keeps nothing', async (_, body, expected) => {
  await migrate(sql)
  const before = await describeSchema(sql)
  const text = `create or replace function shade() returns text language sql as $$ ${body} $$;`
  const folder = await createFolder(
    own,
    { '9000_made_up.sql': 'create table more (id text)' },
    { 'shade.sql': text },
  )
  await expect(migrate(sql, folder)).rejects.toThrow(expected)
  expect(await describeSchema(sql)).toEqual(before)
  expect(await readSchemaState(sql)).toMatchObject({ applied: own.toSorted(), refusal: null })
})

test('error: rejects a migration that drops something that a function needs', async () => {
  await migrate(sql)
  const folder = await createFolder(own, { '9000_made_up.sql': 'alter table tab_line drop column moved' })
  await expect(migrate(sql, folder)).rejects.toThrow(
    /function arrived_of_sale failed, and all changes were rolled back: .*l\.moved/,
  )
})

test.each([
  [
    'another function',
    'create or replace function other() returns text language sql as $$ $$;',
    /got other$/,
  ],
  ['two functions', `${shade('a')}${shade('b').replace('shade', 'more')}`, /got shade, more$/],
  ['no function', 'select 1', /got none$/],
])('error: rejects a file with %s', async (_, text, expected) => {
  const folder = await createFolder(own, {}, { 'shade.sql': text.replaceAll(/^ +/gm, '') })
  await expect(migrate(sql, folder)).rejects.toThrow(expected)
})

test('error: rejects a downgrade: functions of a newer version are not replaced, dropped or recreated', async () => {
  const [changed, kept, gone] = ['accept_payments.sql', 'settlement_bucket.sql', 'iso_time.sql']
  const folder = await createFolder(
    own,
    {},
    {
      [changed]: (await readFile(new URL(changed, functionsFolder), 'utf8')).replace("'{}'", "'{ }'"),
      [gone]: null,
      'shade.sql': shade('dark'),
    },
  )
  await migrate(sql)
  await migrate(sql, folder)
  // Functions that are equal in both versions don't matter.
  await sql`update loaded_function set version = '7.0.0' where name in ${sql([changed, kept, gone, 'shade.sql'])}`
  const before = await describeSchema(sql)
  const refusal = await refusalOf(sql)
  expect(refusal).toBeInstanceOf(NewerFunctions)
  expect(String(refusal)).toBe(
    `NewerFunctions: the database is newer than this version, ${version}: its functions differ in accept_payments.sql ` +
      '(loaded by 7.0.0), iso_time.sql (dropped by 7.0.0), shade.sql (loaded by 7.0.0). Start the newest of ' +
      'the named versions, or a later version; or point DATABASE_URL at another database',
  )
  expect(await describeSchema(sql)).toEqual(before)
  expect((await readSchemaState(sql)).refusal).toEqual(refusal)
})

test('behavior: accepts a newer version that didn’t change the functions', async () => {
  await migrate(sql)
  await sql`update loaded_function set version = '7.0.0'`
  expect(await migrate(sql)).toEqual([])
})

test('behavior: finds the newer of two versions', () => {
  for (const [version, than, expected] of [
    ['0.2.0', '0.1.0', true],
    ['0.10.0', '0.9.0', true],
    ['1.0.0', '0.9.9', true],
    ['0.1.0', '0.1.0', false],
    ['0.1.0', '0.2.0', false],
    ['0.1.0', '0.1.0-rc.1', true],
    ['0.1.0-rc.1', '0.1.0', false],
    ['0.1.0-rc.10', '0.1.0-rc.9', true],
    ['0.2.0-rc.1', '0.1.0', true],
    ['0.1.0-rc.1', '0.1.0-rc.1', false],
  ] as const)
    expect(isNewer(version, than), `is ${version} newer than ${than}?`).toBe(expected)
})
