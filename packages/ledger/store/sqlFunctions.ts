import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { readVersion } from '@tollkeeper/runtime/version'
import type { Queryable } from './database.ts'

// Loads the SQL functions, which have one file each. packages/ledger/DECISIONS.md explains why they are loaded this way.

export type SqlFile = {
  name: string
  text: string
  /** SHA-256 of the text, in hex. */
  checksum: string
}

/** A file that creates one function with the file's name, and the triggers that call this function. */
export type SqlFunction = SqlFile & {
  /** The function's declaration up to its body. A function with a different header can't replace this one in place. */
  header: string
}

/** A function that the database has or had. `checksum` is null if `version` dropped it. */
export type LoadedFunction = { name: string; checksum: string | null; header: string; version: string }

/** How the database's functions compare with this version's. */
export type FunctionChanges = {
  /** Functions that the database lacks, or has with another text. */
  load: SqlFunction[]
  /** Names of the files whose functions the database has and this version lacks. */
  drop: string[]
}

/** Reads the SQL files of a folder, sorted by name. */
export async function readSqlFiles(folder: URL): Promise<SqlFile[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, folder), 'utf8')
      return { name, text, checksum: createHash('sha256').update(text).digest('hex') }
    }),
  )
}

/**
 * Reads the functions of a folder.
 *
 * @throws if a file doesn't create exactly one function with the file's name.
 */
export async function readSqlFunctions(folder: URL): Promise<SqlFunction[]> {
  const files = await readSqlFiles(folder)
  return files.map((file) => ({ ...file, header: readHeader(file) }))
}

function readHeader({ name, text }: SqlFile): string {
  const found = [...text.matchAll(/^ *create or replace function (?:\w+\.)?(\w+)\(.*?\bas \$\$/gms)]
  const created = found.map(([, own]) => own)
  if (created.length !== 1 || created[0] !== functionName(name))
    throw new Error(
      `${name}: expected one "create or replace function ${functionName(name)}(… as $$", got ${created.join(', ') || 'none'}`,
    )
  return found[0]?.[0] ?? ''
}

/** Compares the functions that a database has with this version's. */
export function compareFunctions(
  own: readonly SqlFunction[],
  loaded: readonly LoadedFunction[],
): FunctionChanges {
  const checksums = new Map(loaded.map(({ name, checksum }) => [name, checksum]))
  const names = new Set(own.map(({ name }) => name))
  return {
    load: own.filter(({ name, checksum }) => checksums.get(name) !== checksum),
    drop: loaded
      .filter(({ name, checksum }) => checksum !== null && !names.has(name))
      .map(({ name }) => name),
  }
}

/** Returns the functions that a newer version of Tollkeeper loaded or dropped, and that this version would revert. */
export function findNewer(
  { load, drop }: FunctionChanges,
  loaded: readonly LoadedFunction[],
): LoadedFunction[] {
  const changed = new Set([...load.map(({ name }) => name), ...drop])
  return loaded.filter(({ name, version }) => changed.has(name) && isNewer(version, readVersion()))
}

/** Returns whether a version is newer than another one by Semantic Versioning, where a prerelease comes before its release. */
export function isNewer(version: string, than: string): boolean {
  const [core = '', prerelease = ''] = version.split(/-(.*)/s)
  const [otherCore = '', otherPrerelease = ''] = than.split(/-(.*)/s)
  const order = byNumbers.compare(core, otherCore)
  if (order !== 0) return order > 0
  if (prerelease === '' || otherPrerelease === '') return otherPrerelease !== '' && prerelease === ''
  return byNumbers.compare(prerelease, otherPrerelease) > 0
}

const byNumbers = new Intl.Collator('en', { numeric: true })

/** Reads the functions that the database has or had, as {@link loadFunctions} recorded them. */
export async function readLoaded(sql: Queryable, into: string): Promise<LoadedFunction[]> {
  const [found] = await sql<{ exists: boolean }[]>`
    select to_regclass(${`${into}.loaded_function`}) is not null as exists`
  if (!found?.exists) return []
  const loaded = await sql<LoadedFunction[]>`
    select name, checksum, header, version from ${sql(into)}.loaded_function order by name`
  return [...loaded]
}

/**
 * Loads and drops functions, and checks all functions against the tables that the database has now. Call it in the transaction
 * that applies the migrations.
 */
export async function loadFunctions(
  sql: Queryable,
  { load, drop }: FunctionChanges,
  loaded: readonly LoadedFunction[],
  into: string,
): Promise<void> {
  await sql`
    create table if not exists ${sql(into)}.loaded_function (
      name text primary key,
      checksum text,          -- of the text that was executed: SHA-256, hex; null: the function was dropped
      header text not null,   -- the declaration up to the body
      version text not null,  -- of the Tollkeeper that loaded or dropped it
      loaded_at timestamptz not null default now()
    )`
  // A migration may have fired deferred triggers. Postgres drops no trigger that still has to run.
  await sql`set constraints all immediate`
  // Functions call each other, so their bodies are checked after all of them exist.
  await sql`set local check_function_bodies = off`
  for (const name of drop) await dropFunction(sql, into, name)
  const headers = new Map(
    loaded.filter(({ checksum }) => checksum !== null).map(({ name, header }) => [name, header]),
  )
  for (const { name, text, checksum, header } of load) {
    const hasSameHeader = headers.get(name) === header
    await (hasSameHeader ? dropTriggers(sql, into, name) : dropFunction(sql, into, name))
    await sql.unsafe(text).catch((error: unknown) => fail(name, error))
    await record(sql, into, { name, checksum, header })
  }
  await sql`set local check_function_bodies = on`
  await validateFunctions(sql, into)
}

/** Drops a function and its triggers if it exists, and records that. */
async function dropFunction(sql: Queryable, into: string, name: string): Promise<void> {
  await dropTriggers(sql, into, name)
  const [found] = await sql<{ signature: string }[]>`
    select oid::regprocedure::text as signature from pg_proc
    where pronamespace = ${into}::regnamespace and proname = ${functionName(name)}`
  if (found === undefined) return
  await sql.unsafe(`drop function ${found.signature}`).catch((error: unknown) => fail(name, error))
  await record(sql, into, { name, checksum: null, header: '' })
}

/** Drops the triggers that call a function. The function's file then creates the current triggers. */
async function dropTriggers(sql: Queryable, into: string, name: string): Promise<void> {
  const triggers = await sql<{ name: string; table: string }[]>`
    select quote_ident(t.tgname) as name, t.tgrelid::regclass::text as table
    from pg_trigger t join pg_proc p on p.oid = t.tgfoid
    where p.pronamespace = ${into}::regnamespace and p.proname = ${functionName(name)} and not t.tgisinternal`
  for (const trigger of triggers) await sql.unsafe(`drop trigger ${trigger.name} on ${trigger.table}`)
}

async function record(
  sql: Queryable,
  into: string,
  { name, checksum, header }: Omit<LoadedFunction, 'version'>,
): Promise<void> {
  await sql`
    insert into ${sql(into)}.loaded_function (name, checksum, header, version)
    values (${name}, ${checksum}, ${header}, ${readVersion()})
    on conflict (name) do update set
      checksum = excluded.checksum, header = excluded.header, version = excluded.version, loaded_at = now()`
}

/** Checks the bodies of all functions, because loading doesn't check them. */
async function validateFunctions(sql: Queryable, into: string): Promise<void> {
  const functions = await sql<{ name: string; oid: number; language: string }[]>`
    select p.proname as name, p.oid, l.lanname as language from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace = ${into}::regnamespace order by name`
  for (const { name, oid, language } of functions) {
    const validator = language === 'sql' ? sql`fmgr_sql_validator` : sql`plpgsql_validator`
    await sql`select ${validator}(${oid}::oid)`.catch((error: unknown) => fail(`${name}.sql`, error))
  }
}

function fail(name: string, error: unknown): never {
  const reason = error instanceof Error ? error.message : String(error)
  throw new Error(`function ${functionName(name)} failed, and all changes were rolled back: ${reason}`, {
    cause: error,
  })
}

function functionName(file: string): string {
  return basename(file, '.sql')
}
