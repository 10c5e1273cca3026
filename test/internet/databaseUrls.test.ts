import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { type AddressInfo, connect, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { poolServer } from '@tollkeeper/indexer/poolServer'
import { withSql } from '@tollkeeper/indexer/withSql'
import { openDatabase, requirePostgresAt } from '@tollkeeper/ledger/store/database'
import { logIgnoredParameters } from '@tollkeeper/ledger/store/databaseServer'
import { readDatabaseUrls } from '@tollkeeper/ledger/store/pooler'
import { databaseParameters, readDatabaseUrl } from '@tollkeeper/runtime/databaseUrl'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import type { Postgres } from '../../apps/devstack/stack/postgres.ts'
import { authorityFile, startTlsPostgres } from '../support/tlsPostgres.ts'

// Postgres URLs in the forms that hosting companies print, with each driver, against a server with TLS and
// one without.

/** node-postgres as Ponder resolves it. */
type PonderPool = new (
  options: object,
) => { query: (text: string) => Promise<{ rows: { ssl: boolean }[] }>; end: () => Promise<void> }
const { Pool } = createRequire(fileURLToPath(import.meta.resolve('ponder')))('pg') as { Pool: PonderPool }

const isEncrypted = 'select ssl from pg_stat_ssl where pid = pg_backend_pid()'

/** The driver of each process: the api, keeper and commands; the indexer's launcher; Ponder. */
const drivers: [name: string, isEncryptedAt: (url: string) => Promise<boolean | undefined>][] = [
  [
    'api and keeper',
    async (url) => {
      const sql = openDatabase({ url, max: 1, applicationName: 'test' })
      const rows = sql.unsafe<{ ssl: boolean }[]>(isEncrypted)
      return rows.then(([row]) => row?.ssl).finally(() => sql.end({ timeout: 1 }))
    },
  ],
  [
    'launcher of the indexer',
    (url) => withSql(url, async (sql) => (await sql.unsafe<{ ssl: boolean }[]>(isEncrypted))[0]?.ssl),
  ],
  [
    'Ponder',
    async (url) => {
      const pool = new Pool({ ...(await poolServer(url)), max: 1 })
      return pool
        .query(isEncrypted)
        .then(({ rows }) => rows[0]?.ssl)
        .finally(() => pool.end())
    },
  ],
]

let secure: Postgres
let plainUrl: string
const listeners: Server[] = []
let folder: string
beforeAll(async () => {
  plainUrl = inject('postgresUrl')
  secure = await startTlsPostgres()
  folder = await mkdtemp(join(tmpdir(), 'database-urls-'))
})
afterAll(async () => {
  for (const listener of listeners) listener.close()
  await secure?.close()
  await rm(folder, { recursive: true, force: true })
})

/** Forwards connections to the Postgres without TLS. */
async function forward(listen: (server: Server) => void): Promise<Server> {
  const { hostname, port } = new URL(plainUrl)
  const server = createServer((client) => {
    const target = connect(Number(port), hostname)
    client.pipe(target).pipe(client)
    for (const socket of [client, target]) socket.on('error', () => socket.destroy())
  })
  listeners.push(server)
  const listening = new Promise((resolve) => server.once('listening', resolve))
  listen(server)
  await listening
  return server
}

/** Returns the URL of a server with other parameters. */
function withQuery(url: string, query: string, host = '127.0.0.1'): string {
  const changed = new URL(url)
  changed.hostname = host
  return `${changed.href}?${query}`
}

/** Parameters that hosting companies print after the name of the database. */
const printed = [
  'sslmode=require&channel_binding=require',
  'schema=public',
  'pgbouncer=true&connection_limit=1',
  'uselibpqcompat=true&sslmode=require',
  'sslmode=prefer',
  'sslmode=require&application_name=tollkeeper&connect_timeout=10',
  'options=-c%20search_path%3Dpublic&target_session_attrs=read-write',
  'keepalives=1&keepalives_idle=30',
  'sslmode=no-verify',
  'sslmode=require&supa=base-pooler.x',
  'sslmode=require&sslnegotiation=direct&pool_timeout=15&statement_cache_size=0',
]

describe.each(drivers)('driver %s', (_name, isEncryptedAt) => {
  test.each(printed)('args: %s connects with TLS to a server whose authority is unknown', async (query) => {
    expect(await isEncryptedAt(withQuery(secure.url, query))).toBe(true)
  })

  test.each(['sslmode=prefer', 'sslmode=allow', 'schema=public', 'sslmode=disable', 'ssl=false'])(
    'args: %s connects to a server without TLS',
    async (query) => {
      expect(await isEncryptedAt(withQuery(plainUrl, query))).toBe(false)
    },
  )

  test('args: sslmode=disable never encrypts', async () => {
    expect(await isEncryptedAt(withQuery(secure.url, 'sslmode=disable'))).toBe(false)
  })

  test('error: `require` and stricter modes reject a server without TLS', async () => {
    const modes = ['require', 'verify-ca', 'verify-full']
    const refused = modes.map((mode) =>
      expect(isEncryptedAt(withQuery(plainUrl, `sslmode=${mode}`))).rejects.toThrow(/TLS|SSL|socket/i),
    )
    await Promise.all(refused)
  })

  test('error: a mode that verifies certificates rejects a server whose authority is unknown', async () => {
    const queries = [
      'sslmode=verify-ca',
      'sslmode=verify-full',
      'ssl=true',
      'sslrootcert=system',
      'sslmode=require&sslrootcert=system',
    ]
    const refused = queries.map((query) =>
      expect(isEncryptedAt(withQuery(secure.url, query, 'localhost')), query).rejects.toThrow(/certificate/),
    )
    await Promise.all(refused)
  })

  test('args: sslrootcert names the authority; `require` then checks the authority, and only verify-full checks the host', async () => {
    for (const mode of ['require', 'verify-ca']) {
      expect(await isEncryptedAt(withQuery(secure.url, `sslmode=${mode}&sslrootcert=${authorityFile}`))).toBe(
        true,
      )
    }
    const full = `sslmode=verify-full&sslrootcert=${authorityFile}`
    expect(await isEncryptedAt(withQuery(secure.url, full, 'localhost'))).toBe(true)
    await expect(isEncryptedAt(withQuery(secure.url, full))).rejects.toThrow(/altnames|IP/)
  })

  test('args: the host can be a socket folder or an IPv6 address', async () => {
    const { username, password } = new URL(plainUrl)
    const socketPort = 5_432 + listeners.length
    await forward((server) => server.listen(join(folder, `.s.PGSQL.${socketPort}`)))
    const bySocket = `postgresql://${username}:${password}@:${socketPort}/postgres?host=${folder}`
    expect(await isEncryptedAt(bySocket)).toBe(false)
    expect(
      await isEncryptedAt(
        bySocket.replace(`@:${socketPort}`, `@${encodeURIComponent(folder)}:${socketPort}`),
      ),
    ).toBe(false)
    const { port } = (await forward((server) => server.listen(0, '::1'))).address() as AddressInfo
    expect(
      await isEncryptedAt(`postgres://${username}:${password}@[::1]:${port}/postgres?keepalives=1`),
    ).toBe(false)
  })

  test('error: names the missing file of sslrootcert', async () => {
    const url = withQuery(secure.url, 'sslmode=verify-full&sslrootcert=/nowhere/ca.pem')
    await expect(async () => isEncryptedAt(url)).rejects.toThrow(
      "DATABASE_URL: expected a PEM file, got sslrootcert=/nowhere/ca.pem, which can't be read (ENOENT)",
    )
  })
})

test('args: the URL’s session options reach the server, and a process’s own settings override them', async () => {
  const url = withQuery(plainUrl, `options=${encodeURIComponent('-c search_path=public -c work_mem=9MB')}`)
  const sql = openDatabase({ url, max: 1, applicationName: 'test' })
  const [row] =
    await sql`select current_setting('search_path') as path, current_setting('work_mem') as memory`
  expect(row).toEqual({ path: 'tollkeeper', memory: '9MB' })
  await sql.end()
  const { options } = await poolServer(url)
  expect(options).toBe('-c search_path=public -c work_mem=9MB')
})

test('behavior: each process sets the application name of its sessions itself, so that the indexer can find Ponder’s sessions', async () => {
  const sql = openDatabase({ url: withQuery(plainUrl, 'application_name=x'), max: 1, applicationName: 'own' })
  const [row] = await sql`select current_setting('application_name') as name`
  expect(row).toEqual({ name: 'own' })
  await sql.end()
})

test.each([
  [
    'postgresql://user:p%40ss%2Fword@db.example/name',
    { user: 'user', password: 'p@ss/word', host: 'db.example', port: 5432, database: 'name' },
  ],
  ['postgresql://user.project:pass@h:6543/postgres', { user: 'user.project', port: 6543 }],
  ['postgres://user:p@ss@h/db', { password: 'p@ss', host: 'h' }],
  ['postgres://u:pass@[::1]:5433/db', { host: '::1', port: 5433 }],
  ['postgresql:///db?host=/var/run/postgresql', { host: '/var/run/postgresql', database: 'db', tls: null }],
  ['postgres://%2Fvar%2Frun%2Fpostgresql/db', { host: '/var/run/postgresql', tls: null }],
  ['postgres://u@/db?host=other&port=1&user=v&password=w&dbname=n', { host: 'other', port: 1, user: 'v' }],
  ['postgres://u:p@h', { database: 'u' }],
  ['postgres://u:p@h/?sslmode=require', { database: 'u' }],
  ['postgres://h/db', { user: 'inherited', password: 'secret' }],
  ['postgres://u:p@h/db?connect_timeout=0', { connectSeconds: null }],
  ['postgres://u:p@h/db?connect_timeout=30', { connectSeconds: 30 }],
  ['postgres://u:p@h/db?sslmode=', { host: 'h' }],
])('args: reads %s as libpq does', (url, expected) => {
  const read = readDatabaseUrl(url, { PGUSER: 'inherited', PGPASSWORD: 'secret' })
  expect(read).toMatchObject({ server: expected })
})

test.each([
  [
    'sslmode=required',
    'the parameter sslmode=required: it is one of disable, allow, prefer, require, no-verify',
  ],
  ['gssencmode=require', 'the parameter gssencmode=require: use sslmode=require'],
  ['sslaccept=strict', 'the parameter sslaccept=strict: use sslmode=verify-full instead'],
  ['target_session_attrs=standby', 'each process writes'],
  ['client_encoding=latin1', 'sessions always use UTF-8'],
  ['require_auth=scram-sha-256', 'the parameter require_auth, which is not supported: remove it'],
  ['hostaddr=1.2.3.4', 'the parameter hostaddr'],
  ['sslcrl=/x', 'the parameter sslcrl'],
  ['sslmod=require', 'the parameter sslmod'],
  ['constructor=1', 'the parameter constructor'],
  ['sslmode=require&sslmode=disable', 'sslmode twice'],
  ['ssl=true&sslmode=disable', 'contradict'],
  ['sslmode=disable&sslrootcert=system', 'contradict'],
  ['host=a,b', 'several hosts'],
  ['port=x', 'a port is a number'],
])('error: rejects the parameter ?%s and names the fault', (query, fault) => {
  const url = `postgres://user:hunter2@host/db?${query}`
  expect(() => readDatabaseUrls({ DATABASE_URL: url })).toThrow(/^DATABASE_URL: expected postgres:\/\/user/)
  expect(() => readDatabaseUrls({ DATABASE_URL: url })).toThrow(fault)
  expect(() => readDatabaseUrls({ DATABASE_URL: url })).not.toThrow(/hunter2/)
})

test.each([
  ['postgres://user:hun#ter2@host/db', 'write # as %23'],
  ['postgres://user:hunt?er2@host/db', 'a port that is not a number'],
  ['postgres://user:hunter2%@host/db', 'a % in the password'],
  ['postgres://u:p@a:1,b:2/db', 'several hosts'],
  ['postgres://u:p@a,b/db', 'several hosts'],
  ['postgres://u:p@::1/db', 'write an IPv6 address as [::1]'],
  ['postgres://u:p@h:99999/db', 'a port that is not a number'],
  ['mysql://u:hunter2@h/db', 'something else'],
])('error: refuses %s without repeating a password', (url, fault) => {
  const read = readDatabaseUrl(url, {})
  expect(read).toEqual({ fault: expect.stringContaining(fault) })
  expect(JSON.stringify(read)).not.toMatch(/hun|er2/)
})

test('behavior: logs each ignored parameter, as a warning if the connection provides less than the parameter demands', () => {
  const lines: unknown[] = []
  const log = {
    debug: (line: object) => lines.push(['debug', line]),
    warn: (line: object) => lines.push(['warn', line]),
  }
  const url = 'postgres://u:p@h/db?sslmode=require&channel_binding=require&schema=public'
  logIgnoredParameters({ DATABASE_URL: url }, log as never)
  expect(lines).toEqual([
    ['warn', expect.objectContaining({ parameter: 'channel_binding', variable: 'DATABASE_URL' })],
    ['debug', expect.objectContaining({ parameter: 'schema' })],
  ])
})

test('default: reads libpq’s variables for what the URL omits, and names a wrong variable', () => {
  const url = 'postgres://u:p@h/db'
  expect(readDatabaseUrl(url, { PGSSLMODE: 'verify-full' })).toMatchObject({
    server: { tls: { verify: 'host' } },
  })
  expect(readDatabaseUrl(`${url}?sslmode=disable`, { PGSSLMODE: 'verify-full' })).toMatchObject({
    server: { tls: null },
  })
  expect(readDatabaseUrl(url, { PGSSLMODE: 'strict' })).toEqual({
    fault: expect.stringMatching(/^PGSSLMODE=strict/),
  })
})

test('error: rejects a standby at the start', async () => {
  const url = await secure.createDatabase('standby')
  const sql = openDatabase({ url, max: 1, applicationName: 'test', limited: false })
  await sql`create or replace function pg_catalog.pg_is_in_recovery() returns boolean language sql as 'select true'`
  await sql.end()
  await expect(requirePostgresAt(url)).rejects.toThrow(
    'DATABASE_URL: expected the primary, which accepts writes, got a standby',
  )
})

test('behavior: docs/postgres.md has the same table of parameters as the code', async () => {
  const text = await readFile(new URL('../../docs/postgres.md', import.meta.url), 'utf8')
  const rows = [...text.matchAll(/^\| (used|ignored) +\| (.*?) +\|/gm)]
  for (const use of ['used', 'ignored']) {
    const named = rows
      .filter(([, one]) => one === use)
      .flatMap(([, , names = '']) => names.match(/(?<=`)\w+(?=`)/g))
    const known = Object.keys(databaseParameters).filter((name) => databaseParameters[name]?.use === use)
    expect(named.sort()).toEqual(known.sort())
  }
})
