import { createHash } from 'node:crypto'
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { readVersion } from '@tollkeeper/runtime/version'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { createTestDatabase } from '../../../test/support/database.ts'
import { root, runCommand } from '../../../test/support/processes.ts'
import { describeSchema, findLost, readRows } from '../../../test/support/schemaContents.ts'
import { seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { checksumsPath, describeChanged, renderChecksums } from '../../../tools/checksumMigrations.ts'
import { type Database, openDatabase } from './database.ts'
import {
  ledgerFolder,
  migrate,
  NewerFunctions,
  OtherBaseline,
  readMigrations,
  readSchemaState,
  UnknownMigrations,
} from './migrate.ts'
import { isNewer, readSqlFunctions } from './sqlFunctions.ts'

const baseline = '0001_schema.sql'
const version = readVersion()
const migrationsFolder = new URL('migrations/', ledgerFolder)
const functionsFolder = new URL('functions/', ledgerFolder)
const own = (await readMigrations()).map(({ name }) => name)
const ownFunctions = (await readSqlFunctions(functionsFolder)).map(({ name }) => name)

const cleanups: (() => Promise<unknown>)[] = []
let sql: Database
beforeEach(async () => {
  sql = await openTestDatabase()
})
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup()
})

async function openTestDatabase(): Promise<Database> {
  const database = openDatabase({ url: await createTestDatabase(), applicationName: 'test' })
  cleanups.push(() => database.end())
  return database
}

/** A folder with our migrations and functions of these names, and with made-up ones. A made-up `null` is left out. */
async function createFolder(
  names: readonly string[],
  madeUp: Record<string, string> = {},
  functions: Record<string, string | null> = {},
): Promise<URL> {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-migrations-'))
  cleanups.push(() => rm(folder, { recursive: true }))
  await mkdir(join(folder, 'migrations'))
  await mkdir(join(folder, 'functions/stored'), { recursive: true })
  const stored = await readdir(new URL('stored/', functionsFolder))
  for (const name of names)
    await (stored.includes(name)
      ? copyFile(new URL(`stored/${name}`, functionsFolder), join(folder, 'functions/stored', name))
      : copyFile(new URL(name, migrationsFolder), join(folder, 'migrations', name)))
  for (const [name, text] of Object.entries(madeUp)) await writeFile(join(folder, 'migrations', name), text)
  if (names.includes(baseline))
    for (const name of ownFunctions)
      await copyFile(new URL(name, functionsFolder), join(folder, 'functions', name))
  for (const [name, text] of Object.entries(functions)) {
    const path = join(folder, 'functions', name)
    await (text === null ? rm(path) : writeFile(path, text))
  }
  return pathToFileURL(`${folder}/`)
}

const tables = async () =>
  (await sql`select from information_schema.tables where table_schema = 'tollkeeper'`).count

async function refusalOf(database: Database): Promise<Error> {
  return migrate(database).then(
    () => new Error('migrate refused nothing'),
    (error: Error) => error,
  )
}

test('default: an empty database gets the schema, once', async () => {
  const before = await readSchemaState(sql)
  expect(before).toMatchObject({ applied: [], pending: own.map((name) => ({ name })), refusal: null })
  expect(await tables()).toBe(0)
  expect(await migrate(sql)).toEqual([...own, ...ownFunctions])
  expect(await migrate(sql)).toEqual([])
  expect(await readSchemaState(sql)).toEqual({
    applied: own.toSorted(),
    pending: [],
    functions: { load: [], drop: [] },
    refusal: null,
  })
})

test('behavior: the database holds what was applied: checksum of the text, and version of Tollkeeper', async () => {
  await migrate(sql)
  const text = await readFile(new URL(baseline, migrationsFolder))
  const rows = await sql`select name, checksum, version from migration where name = ${baseline}`
  const checksum = createHash('sha256').update(text).digest('hex')
  expect([...rows]).toEqual([{ name: baseline, checksum, version }])
})

test('behavior: of processes that start together, one migrates and the others wait for it', async () => {
  const applied = await Promise.all([migrate(sql), migrate(sql), migrate(sql)])
  expect(applied.flat()).toEqual([...own, ...ownFunctions])
})

test('behavior: a start with nothing to change runs no statement that changes a schema', async () => {
  await migrate(sql)
  await sql`
    create function refuse_ddl() returns event_trigger language plpgsql as
    $$ begin raise exception 'a statement changes the schema: %', tg_tag; end $$`
  await sql`create event trigger no_ddl on ddl_command_start execute function refuse_ddl()`
  expect(await migrate(sql)).toEqual([])
  await expect(sql`create table more (id text)`).rejects.toThrow(/changes the schema: CREATE TABLE/)
})

describe('a database that is not of this version', () => {
  test('error: one that a newer version changed is refused, and nothing changes', async () => {
    await migrate(sql)
    await sql`
      insert into migration (name, checksum, version)
      values ('9998_later.sql', 'a', '7.0.0'), ('9999_latest.sql', 'b', '7.1.0')`
    // The later version has a migration that we lack, and we have one that it lacks: refused before any is applied.
    await sql`delete from migration where name = ${baseline}`
    const before = await describeSchema(sql)
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(UnknownMigrations)
    expect(String(refusal)).toBe(
      `UnknownMigrations: the database is newer than this version, ${version}: it has 9998_later.sql (applied by 7.0.0), ` +
        '9999_latest.sql (applied by 7.1.0). Start the version that applied the last of them, or a newer one; or point ' +
        'DATABASE_URL at another database',
    )
    expect(await describeSchema(sql)).toEqual(before)
    expect(await readSchemaState(sql)).toMatchObject({ pending: [{ name: baseline }], refusal })
  })

  test('error: one that another version made from another text is refused, which names that version', async () => {
    await migrate(sql)
    await sql`update migration set checksum = 'c', version = '0.0.9' where name = ${baseline}`
    await sql`insert into migration (name, checksum, version) values ('9999_latest.sql', 'b', '7.1.0')`
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(OtherBaseline)
    expect(String(refusal)).toMatch(
      `OtherBaseline: the database was made by Tollkeeper 0.0.9, from another ${baseline} than that of this version, ${version}. `,
    )
    expect(String(refusal)).toMatch(
      /Start the version that made it, .* export .* an empty database.* development database .*drop schema/,
    )
    expect((await readSchemaState(sql)).refusal).toEqual(refusal)
  })

  test('error: one that this version made from another text is refused as of another build', async () => {
    await migrate(sql, await createFolder([], { [baseline]: 'create table provider (id text)' }))
    const refusal = await refusalOf(sql)
    expect(String(refusal)).toMatch(
      `made by another build of Tollkeeper ${version}, from another ${baseline}`,
    )
    expect(await tables()).toBe(3)
  })

  test('error: one of an earlier build, with more migrations than this version has, is refused as of that build', async () => {
    const earlier = {
      [baseline]: 'create table provider (id text)',
      '0002_tabs.sql': 'create table tab (id text)',
    }
    await migrate(sql, await createFolder([], earlier))
    await sql`drop table loaded_function`
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(OtherBaseline)
    expect(String(refusal)).toMatch(
      `made by another build of Tollkeeper ${version}, from another ${baseline} than that of this version, ${version}. ` +
        'This version can neither use nor migrate it, and changed nothing.',
    )
    expect(await tables()).toBe(3)
  })

  test('error: another text of a function whose results tables store is refused, because stored rows would contradict it', async () => {
    await migrate(sql)
    await sql`update migration set checksum = 'c' where name = 'is_testnet.sql'`
    expect(String(await refusalOf(sql))).toMatch(/another build of .*, from another is_testnet\.sql than/)
  })

  test('error: one without checksums is refused as of before the baseline', async () => {
    await sql`create schema tollkeeper`
    await sql`create table migration (name text primary key, applied_at timestamptz not null default now())`
    await sql`insert into migration (name) values (${baseline})`
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(OtherBaseline)
    expect(String(refusal)).toMatch(
      /^OtherBaseline: the database was made by a version before 0\.1\.0's baseline\. .*Start the version that made it/,
    )
    expect(await tables()).toBe(1)
    expect(await readSchemaState(sql)).toMatchObject({ applied: [baseline], refusal })
  })

  test.each(['api', 'keeper'])(
    'error: the %s says so and ends, instead of failing at each request',
    async (name) => {
      const url = await createTestDatabase()
      const database = openDatabase({ url, applicationName: 'test' })
      cleanups.push(() => database.end())
      await migrate(database)
      await database`update migration set checksum = 'c', version = '0.0.9' where name = ${baseline}`
      const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-refused-'))
      cleanups.push(() => rm(folder, { recursive: true }))
      const command = runCommand([process.execPath, `${name}/main.ts`], {
        DATABASE_URL: url,
        NETWORKS: 'localhost',
        RPC_URL_LOCALHOST: 'http://127.0.0.1:9',
        PLATFORM_WALLET: `0x${'fe'.repeat(20)}`,
        API_PORT: '0',
        MACAROON_SECRETS: `k1:${'ab'.repeat(32)}`,
        RECEIPT_KEY_FILE: join(folder, 'receipt-keys.json'),
        KEEPER_PORT: '0',
        KEEPER_PRIVATE_KEYS: `0x${'5'.repeat(64)}`,
        ETH_USD: '3000',
      })
      expect(await command.exited).toBe(1)
      expect(command.output()).toBe(`${name}: ${(await refusalOf(database)).message}`)
    },
  )
})

describe('the checksums of migrations', () => {
  test('behavior: those that are committed are those of the files', async () => {
    const migrations = await readMigrations()
    const recorded = await readFile(join(root, checksumsPath), 'utf8')
    const changed = describeChanged(recorded, migrations)
    expect(changed, changed ?? '').toBeNull()
    expect(recorded, 'a migration is new: run npm run generate').toBe(renderChecksums(migrations))
  })

  test('behavior: only migrations lie beside them', async () => {
    const others = (await readdir(migrationsFolder)).filter((name) => !/^\d{4}_\w+\.sql$/.test(name))
    expect(others).toEqual(['checksums.sha256'])
  })

  test('error: a migration that was changed or deleted is named, and a new file is asked for; a new one is none', async () => {
    const read = async (madeUp: Record<string, string>) => readMigrations(await createFolder([], madeUp))
    const before = await read({ '0001_a.sql': 'select 1', '0002_b.sql': 'select 2' })
    const recorded = renderChecksums(before)
    const grown = await read({
      '0001_a.sql': 'select 1',
      '0002_b.sql': 'select 2',
      '0003_c.sql': 'select 3',
    })
    expect(describeChanged(recorded, grown)).toBeNull()
    const changed = describeChanged(recorded, await read({ '0001_a.sql': 'select 1 ' }))
    expect(changed).toMatch(/0001_a\.sql: expected the text of checksum [0-9a-f]{64}, got [0-9a-f]{64}\n/)
    expect(changed).toMatch(/0002_b\.sql: expected .* got no file\nTake these changes back .* a new file/)
  })
})

describe('the upgrade of a filled database', () => {
  const ofBaseline = own.filter((name) => !/^\d/.test(name) || name === baseline)

  /**
   * A database of the baseline alone, with rows. Today's code writes them: once a later migration changes what it writes,
   * SQL of the baseline's time must replace it.
   */
  async function fillBaseline(): Promise<Database> {
    const database = await openTestDatabase()
    await migrate(database, await createFolder(ofBaseline))
    const provider = await seedProvider(database, 2)
    for (const endpointId of provider.endpointIds) await seedPayment(database, { provider, endpointId })
    await seedPayment(database, { provider, splitter: `0x${'5a'.repeat(20)}` })
    return database
  }

  async function describeFresh(folder?: URL): Promise<string[]> {
    const fresh = await openTestDatabase()
    await migrate(fresh, folder)
    return describeSchema(fresh)
  }

  test('default: every later migration keeps its rows, and makes the schema that a new database has', async () => {
    const database = await fillBaseline()
    const before = await readRows(database)
    expect(before.get('endpoint')).toHaveLength(2)
    expect(before.get('payment')).toHaveLength(3)
    expect(before.get('signed_authorization')).toHaveLength(5)
    expect(await migrate(database)).toEqual(own.filter((name) => !ofBaseline.includes(name)))
    expect(findLost(before, await readRows(database))).toEqual([])
    expect(await describeSchema(database)).toEqual(await describeFresh())
  })

  test('behavior: so does a made-up migration that adds a column; the schemas differ without it', async () => {
    const later = {
      '9000_made_up.sql': `
        alter table provider add column colour text not null default 'red' check (colour <> '');
        create index on provider (colour);
        create function shade(colour text) returns text language sql immutable as $$ select 'dark ' || colour $$`,
    }
    const folder = await createFolder(own, later)
    const database = await fillBaseline()
    const before = await readRows(database)
    expect(await migrate(database, folder)).toEqual(['9000_made_up.sql'])
    const after = await readRows(database)
    expect(after.get('provider')).toMatchObject([{ name: 'Weather', colour: 'red' }])
    expect(findLost(before, after)).toEqual([])
    const upgraded = await describeSchema(database)
    expect(upgraded).toEqual(await describeFresh(folder))
    const without = await describeFresh()
    const added = upgraded.filter((line) => !without.includes(line)).map((line) => line.split(' ')[0])
    expect(new Set(added)).toEqual(new Set(['column', 'constraint', 'function', 'index', 'relation']))
  })

  test('behavior: rows that a migration deletes or changes are found', async () => {
    const later = {
      '9000_made_up.sql': `delete from splitter; update provider set name = 'Climate'; create table more (id text)`,
    }
    const database = await fillBaseline()
    const before = await readRows(database)
    await migrate(database, await createFolder(own, later))
    const lost = findLost(before, await readRows(database))
    expect(lost.map((row) => row.split(':')[0])).toEqual(['provider', 'splitter'])
  })

  test('error: of a migration that fails on rows, and of those with it, nothing is kept', async () => {
    const folder = await createFolder(own, {
      '9000_made_up.sql': 'create table more (id text); delete from presentation',
      // An empty database would take it.
      '9001_broken.sql': 'alter table provider add column colour text not null',
    })
    await expect(describeFresh(folder)).resolves.toBeDefined()
    const database = await fillBaseline()
    const [schema, rows] = [await describeSchema(database), await readRows(database)]
    await expect(migrate(database, folder)).rejects.toThrow(
      /migration 9001_broken\.sql failed, nothing of it was kept: column "colour" .* contains null values/,
    )
    expect(await describeSchema(database)).toEqual(schema)
    expect(await readRows(database)).toEqual(rows)
    expect(await readSchemaState(database)).toMatchObject({ applied: ofBaseline.toSorted(), refusal: null })
    // The same version without the broken migration goes on from there.
    await migrate(database)
    expect(await describeSchema(database)).toEqual(await describeFresh())
  })
})

describe('SQL functions', () => {
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

  test('default: the database records which text of each function it has, and who loaded it', async () => {
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
    expect(loaded.get('network_name.sql')).toMatchObject({ version: '0.0.9' })
    // In place, so that a session that is about to call it still finds it.
    expect(await oid()).toEqual([{ oid: before?.oid, told: '1970-01-01T00:00:00.000Z' }])
  })

  test.each([
    ['argument', 'shade(dark boolean, colour text) returns text'],
    ['name of an argument', 'shade(color text) returns text'],
    ['type of the result', 'shade(colour text) returns varchar'],
  ])('behavior: a function with another %s takes the place of the one before', async (_, declaration) => {
    await migrate(sql, await createFolder(own, {}, { 'shade.sql': shade('dark') }))
    const text = `create or replace function ${declaration} language sql as $$ select 'light' $$;`
    await migrate(sql, await createFolder(own, {}, { 'shade.sql': text }))
    const functions = await sql`select prosrc from pg_proc where proname = 'shade'`
    expect([...functions]).toEqual([{ prosrc: " select 'light' " }])
  })

  test('behavior: a function that is no longer there is dropped with its triggers, and comes back as new', async () => {
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

  test('behavior: a trigger that is no longer in the file of its function is dropped', async () => {
    await migrate(sql)
    const text = await readFile(new URL('count_batches.sql', functionsFolder), 'utf8')
    const shorter = text.slice(0, text.lastIndexOf('create trigger'))
    await migrate(sql, await createFolder(own, {}, { 'count_batches.sql': shorter }))
    const triggers = sql`select tgname from pg_trigger where tgrelid = 'settled_batch'::regclass and not tgisinternal`
    expect(await triggers).toEqual([{ tgname: 'batches_recorded' }])
    await migrate(sql)
    expect(await describeSchema(sql)).toEqual(await describeNew())
  })

  test('behavior: functions are loaded after the migrations that their texts need, and in whatever order they call each other', async () => {
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

  test('behavior: a function is replaced although a migration before it has fired its deferred trigger', async () => {
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

  test('behavior: of processes that start together with a changed function, one loads it', async () => {
    await migrate(sql)
    const folder = await createFolder(own, {}, { 'shade.sql': shade('dark') })
    const others = await Promise.all([openTheSame(sql), openTheSame(sql)])
    const loaded = await Promise.all([sql, ...others].map((database) => migrate(database, folder)))
    expect(loaded.flat()).toEqual(['shade.sql'])
  })

  test.each([
    [
      'a body that names no table',
      'select colour from colours',
      /function shade failed, nothing was kept: .*colours/,
    ],
    ['a body that is no SQL', 'select select', /function shade failed, nothing was kept: syntax error/],
  ])('error: %s is refused, and nothing is kept', async (_, body, expected) => {
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

  test('error: a migration that takes away what a function needs is refused', async () => {
    await migrate(sql)
    const folder = await createFolder(own, { '9000_made_up.sql': 'alter table tab_line drop column moved' })
    await expect(migrate(sql, folder)).rejects.toThrow(
      /function arrived_of_sale failed, nothing was kept: .*l\.moved/,
    )
  })

  test.each([
    [
      'another function',
      'create or replace function other() returns text language sql as $$ $$;',
      /got other$/,
    ],
    ['two functions', `${shade('a')}${shade('b').replace('shade', 'more')}`, /got shade, more$/],
    ['none', 'select 1', /got none$/],
  ])('error: a file with %s is refused', async (_, text, expected) => {
    const folder = await createFolder(own, {}, { 'shade.sql': text.replaceAll(/^ +/gm, '') })
    await expect(migrate(sql, folder)).rejects.toThrow(expected)
  })

  test('error: a downgrade is refused: functions of a newer version are not replaced, dropped or brought back', async () => {
    const [changed, kept, gone] = ['accept_payments.sql', 'network_name.sql', 'iso_time.sql']
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
    // What the newer version has as this version does makes no difference.
    await sql`update loaded_function set version = '7.0.0' where name in ${sql([changed, kept, gone, 'shade.sql'])}`
    const before = await describeSchema(sql)
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(NewerFunctions)
    expect(String(refusal)).toBe(
      `NewerFunctions: the database is newer than this version, ${version}: its functions differ in accept_payments.sql ` +
        '(loaded by 7.0.0), iso_time.sql (dropped by 7.0.0), shade.sql (loaded by 7.0.0). Start the version that applied ' +
        'the last of them, or a newer one; or point DATABASE_URL at another database',
    )
    expect(await describeSchema(sql)).toEqual(before)
    expect((await readSchemaState(sql)).refusal).toEqual(refusal)
  })

  test('behavior: a newer version that left the functions alone is no obstacle', async () => {
    await migrate(sql)
    await sql`update loaded_function set version = '7.0.0'`
    expect(await migrate(sql)).toEqual([])
  })

  test.each([
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
  ])('behavior: is %s newer than %s? %s', (version, than, expected) => {
    expect(isNewer(version, than)).toBe(expected)
  })

  async function describeNew(): Promise<string[]> {
    const fresh = await openTestDatabase()
    await migrate(fresh)
    return describeSchema(fresh)
  }

  async function openTheSame(database: Database): Promise<Database> {
    const { host, port, pass, user } = database.options
    const [row] = await database<[{ name: string }]>`select current_database() as name`
    const other = openDatabase({
      url: `postgres://${user}:${pass}@${host[0]}:${port[0]}/${row.name}`,
      applicationName: 'test',
    })
    cleanups.push(() => other.end())
    return other
  }
})
