import { createHash } from 'node:crypto'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readVersion } from '@tollkeeper/runtime/version'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { createTestDatabase } from '../../../test/support/database.ts'
import {
  baseline,
  migrationsFolder,
  own,
  ownFunctions,
  refusalOf,
  useMigrations,
} from '../../../test/support/migrations.ts'
import { root, runCommand } from '../../../test/support/processes.ts'
import { describeSchema, findLost, readRows } from '../../../test/support/schemaContents.ts'
import { seedPayment, seedProvider } from '../../../test/support/seedPayments.ts'
import { checksumsPath, describeChanged, renderChecksums } from '../../../tools/checksumMigrations.ts'
import { type Database, openDatabase } from './database.ts'
import { migrate, OtherBaseline, readMigrations, readSchemaState, UnknownMigrations } from './migrate.ts'

const version = readVersion()
const { openTestDatabase, createFolder } = useMigrations()
let sql: Database
beforeEach(async () => {
  sql = await openTestDatabase()
})

const tables = async () =>
  (await sql`select from information_schema.tables where table_schema = 'tollkeeper'`).count

test('default: creates the schema in an empty database, and changes nothing at the next call', async () => {
  const before = await readSchemaState(sql)
  expect(before).toMatchObject({ applied: [], pending: own.map((name) => ({ name })), refusal: null })
  expect(await tables()).toBe(0)
  expect(await migrate(sql)).toEqual([...own, ...ownFunctions])
  expect(await migrate(sql)).toEqual([])
  expect(await readSchemaState(sql)).toEqual({
    applied: own.toSorted(),
    pending: [],
    functions: { load: [], drop: [] },
    networks: [],
    refusal: null,
  })
})

test('behavior: records the checksum of each applied text and the version of Tollkeeper', async () => {
  await migrate(sql)
  const text = await readFile(new URL(baseline, migrationsFolder))
  const rows = await sql`select name, checksum, version from migration where name = ${baseline}`
  const checksum = createHash('sha256').update(text).digest('hex')
  expect([...rows]).toEqual([{ name: baseline, checksum, version }])
})

test('behavior: if processes start together, one migrates and the others wait for it', async () => {
  const applied = await Promise.all([migrate(sql), migrate(sql), migrate(sql)])
  expect(applied.flat()).toEqual([...own, ...ownFunctions])
})

test('behavior: runs no statement that changes the schema if nothing is pending', async () => {
  await migrate(sql)
  await sql`
    create function refuse_ddl() returns event_trigger language plpgsql as
    $$ begin raise exception 'a statement changes the schema: %', tg_tag; end $$`
  await sql`create event trigger no_ddl on ddl_command_start execute function refuse_ddl()`
  expect(await migrate(sql)).toEqual([])
  await expect(sql`create table more (id text)`).rejects.toThrow(/changes the schema: CREATE TABLE/)
})

describe('a database of another version', () => {
  test('error: a database that a newer version changed is rejected and left unchanged', async () => {
    await migrate(sql)
    await sql`
      insert into migration (name, checksum, version)
      values ('9998_later.sql', 'a', '7.0.0'), ('9999_latest.sql', 'b', '7.1.0')`
    // The later version has a migration that this version lacks, and this version has a migration that the later version lacks. The database is
    // rejected before any migration is applied.
    await sql`delete from migration where name = ${baseline}`
    const before = await describeSchema(sql)
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(UnknownMigrations)
    expect(String(refusal)).toBe(
      `UnknownMigrations: the database is newer than this version, ${version}: it has 9998_later.sql (applied by 7.0.0), ` +
        '9999_latest.sql (applied by 7.1.0). Start the newest of the named versions, or a later version; or point ' +
        'DATABASE_URL at another database',
    )
    expect(await describeSchema(sql)).toEqual(before)
    expect(await readSchemaState(sql)).toMatchObject({ pending: [{ name: baseline }], refusal })
  })

  test('error: a database that another version created from another baseline is rejected with a message that names that version', async () => {
    await migrate(sql)
    await sql`update migration set checksum = 'c', version = '0.0.9' where name = ${baseline}`
    await sql`insert into migration (name, checksum, version) values ('9999_latest.sql', 'b', '7.1.0')`
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(OtherBaseline)
    expect(String(refusal)).toMatch(
      `OtherBaseline: the database was made by Tollkeeper 0.0.9 from a different ${baseline} (this version is ${version}). `,
    )
    expect(String(refusal)).toMatch(
      /Start the version that made it, .* export .* an empty database.* development database .*drop schema/,
    )
    expect((await readSchemaState(sql)).refusal).toEqual(refusal)
  })

  test('error: a database that this version created from another baseline is rejected as created by another build', async () => {
    await migrate(sql, await createFolder([], { [baseline]: 'create table provider (id text)' }))
    const refusal = await refusalOf(sql)
    expect(String(refusal)).toMatch(
      `made by another build of Tollkeeper ${version} from a different ${baseline}`,
    )
    expect(await tables()).toBe(3)
  })

  test('error: rejects a database of an earlier build that had more migrations than this version, and names that build', async () => {
    const earlier = {
      [baseline]: 'create table provider (id text)',
      '0002_tabs.sql': 'create table tab (id text)',
    }
    await migrate(sql, await createFolder([], earlier))
    await sql`drop table loaded_function`
    const refusal = await refusalOf(sql)
    expect(refusal).toBeInstanceOf(OtherBaseline)
    expect(String(refusal)).toMatch(
      `made by another build of Tollkeeper ${version} from a different ${baseline} (this version is ${version}). ` +
        'This version can neither use nor migrate it, and changed nothing.',
    )
    expect(await tables()).toBe(3)
  })

  test('error: rejects a changed SQL function whose results are stored in indexes, because the stored results would be outdated', async () => {
    await migrate(sql)
    await sql`update migration set checksum = 'c' where name = 'authorization_key.sql'`
    expect(String(await refusalOf(sql))).toMatch(
      /another build of .* from a different authorization_key\.sql/,
    )
  })

  test('error: a database without checksums is rejected as older than the baseline', async () => {
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
    'error: the %s reports a rejected database and exits, instead of failing at each request',
    async (name) => {
      const url = await createTestDatabase()
      const database = openDatabase({ url, applicationName: 'test' })
      onTestFinished(() => database.end())
      await migrate(database)
      await database`update migration set checksum = 'c', version = '0.0.9' where name = ${baseline}`
      const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-refused-'))
      onTestFinished(() => rm(folder, { recursive: true }))
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
      // Earlier lines report that the node is down, because networks are checked first.
      expect(command.output().trim().split('\n').at(-1)).toBe(
        `${name}: ${(await refusalOf(database)).message}`,
      )
    },
  )
})

describe('the checksums of migrations', () => {
  test('behavior: the committed checksums match the files', async () => {
    const migrations = await readMigrations()
    const recorded = await readFile(join(root, checksumsPath), 'utf8')
    const changed = describeChanged(recorded, migrations)
    expect(changed, changed ?? '').toBeNull()
    expect(recorded, 'a migration is new: run npm run generate').toBe(renderChecksums(migrations))
  })

  test('behavior: the folder of migrations contains only migrations and their checksums', async () => {
    const others = (await readdir(migrationsFolder)).filter((name) => !/^\d{4}_\w+\.sql$/.test(name))
    expect(others).toEqual(['checksums.sha256'])
  })

  test('error: reports a migration that was changed or deleted, and asks for a new file; accepts a new migration', async () => {
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
    expect(changed).toMatch(/0002_b\.sql: expected .* got no file\nRevert these changes .* a new file/)
  })
})

describe('the upgrade of a filled database', () => {
  const ofBaseline = own.filter((name) => !/^\d/.test(name) || name === baseline)

  /**
   * Creates a database with only the baseline, and rows that today's code writes. Once a later migration changes what the code writes,
   * replace the code here with SQL that fits the baseline.
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

  test('default: all later migrations keep its rows and produce the same schema as a new database', async () => {
    const database = await fillBaseline()
    const before = await readRows(database)
    expect(before.get('endpoint')).toHaveLength(2)
    expect(before.get('payment')).toHaveLength(3)
    expect(before.get('signed_authorization')).toHaveLength(5)
    expect(await migrate(database)).toEqual(own.filter((name) => !ofBaseline.includes(name)))
    expect(findLost(before, await readRows(database))).toEqual([])
    expect(await describeSchema(database)).toEqual(await describeFresh())
  })

  test('behavior: a sample migration that adds a column produces the schema of a new database; without the migration, the schemas differ', async () => {
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

  test('behavior: the comparison of rows detects rows that a migration deletes or changes', async () => {
    const later = {
      '9000_made_up.sql': `delete from splitter; update provider set name = 'Climate'; create table more (id text)`,
    }
    const database = await fillBaseline()
    const before = await readRows(database)
    await migrate(database, await createFolder(own, later))
    const lost = findLost(before, await readRows(database))
    expect(lost.map((row) => row.split(':')[0])).toEqual(['provider', 'splitter'])
  })

  test('error: if a migration fails on existing rows, all pending migrations are rolled back', async () => {
    const folder = await createFolder(own, {
      '9000_made_up.sql': 'create table more (id text); delete from presentation',
      // This migration would succeed on an empty database.
      '9001_broken.sql': 'alter table provider add column colour text not null',
    })
    await expect(describeFresh(folder)).resolves.toBeDefined()
    const database = await fillBaseline()
    const [schema, rows] = [await describeSchema(database), await readRows(database)]
    await expect(migrate(database, folder)).rejects.toThrow(
      /migration 9001_broken\.sql failed and was rolled back: column "colour" .* contains null values/,
    )
    expect(await describeSchema(database)).toEqual(schema)
    expect(await readRows(database)).toEqual(rows)
    expect(await readSchemaState(database)).toMatchObject({ applied: ofBaseline.toSorted(), refusal: null })
    // The same version without the broken migration then succeeds.
    await migrate(database)
    expect(await describeSchema(database)).toEqual(await describeFresh())
  })
})
