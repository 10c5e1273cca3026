import { randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { parseArgs } from 'node:util'
import postgres from 'postgres'

// Replaces `docker` in tests that run the commands of docs/deployment.md: `docker compose exec -T postgres …` runs pg_dump or pg_restore on
// the test's own server, and `docker compose up` starts nothing. The npm package of Postgres contains neither program, and programs of another
// Postgres version refuse to work with the server. So a dump is a copy of the database without the schemas that pg_dump wasn't asked for, and
// the dump file contains the name of the copy. SERVER_URL is a superuser's URL of the server. The commands name the database "tollkeeper".
// For pg_dump, this name means the database SOURCE, and for pg_restore the database TARGET.

const { SERVER_URL = '', SOURCE = '', TARGET = '' } = process.env
const [compose, command, ...rest] = process.argv.slice(2)
if (compose !== 'compose') throw new Error(`expected docker compose, got docker ${compose}`)
if (command === 'exec') {
  const [noTerminal, service, program, ...args] = rest
  if (noTerminal !== '-T' || service !== 'postgres')
    throw new Error(`unknown command: exec ${rest.join(' ')}`)
  if (program === 'pg_dump') await dump(args)
  else if (program === 'pg_restore') await restore(args)
  else throw new Error(`unknown program: ${program}`)
} else if (command !== 'up') throw new Error(`unknown command: ${command}`)

async function dump(args: string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      username: { type: 'string' },
      format: { type: 'string' },
      schema: { type: 'string', multiple: true, default: [] },
    },
  })
  if (positionals.join() !== 'tollkeeper') throw new Error(`unknown database: ${positionals.join()}`)
  const copy = `dump_${randomBytes(8).toString('hex')}`
  await copyDatabase(SOURCE, copy)
  const at = new URL(SERVER_URL)
  at.pathname = `/${copy}`
  const sql = postgres(at.href, { max: 1, onnotice: () => {} })
  const schemas = await sql<{ name: string }[]>`
    select nspname as name from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'`
  for (const { name } of schemas) {
    if (!values.schema.includes(name)) await sql`drop schema ${sql(name)} cascade`
  }
  await sql.end({ timeout: 1 })
  process.stdout.write(copy)
}

async function restore(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: { username: { type: 'string' }, dbname: { type: 'string' } },
  })
  if (values.dbname !== 'tollkeeper') throw new Error(`unknown database: ${values.dbname}`)
  await copyDatabase(await text(process.stdin), TARGET)
}

async function copyDatabase(from: string, to: string): Promise<void> {
  const sql = postgres(SERVER_URL, { max: 1, onnotice: () => {} })
  // Postgres copies a database only while no session uses it. Processes reconnect immediately, so forbid connections during the copy.
  await sql`alter database ${sql(from)} allow_connections false`
  await sql`select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = ${from}`
  await sql`create database ${sql(to)} template ${sql(from)} strategy file_copy`
  await sql`alter database ${sql(from)} allow_connections true`
  await sql.end({ timeout: 1 })
}
