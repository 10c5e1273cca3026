import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Postgres, startPostgres } from '../../../apps/devstack/stack/postgres.ts'
import { openDatabase } from './database.ts'

// TLS to a real Postgres whose certificate is for `localhost`, signed by an authority of its own (test/support/tls).

const folder = new URL('../../../test/support/tls/', import.meta.url)
const authority = fileURLToPath(new URL('ca.pem', folder))

let server: Postgres
beforeAll(async () => {
  server = await startPostgres({ fast: true })
  const sql = openDatabase({ url: server.url, max: 1, applicationName: 'administrator', limited: false })
  for (const name of ['server.pem', 'server.key']) {
    const lines = await readFile(new URL(name, folder), 'utf8')
    // The server writes the key as its own user, since it takes no key that others may read.
    await sql.unsafe(
      `copy (select unnest(string_to_array('${lines.trim()}', e'\n'))) to program 'umask 077; cat > ${name}'`,
    )
  }
  await sql`alter system set ssl_cert_file = 'server.pem'`
  await sql`alter system set ssl_key_file = 'server.key'`
  await sql`alter system set ssl = on`
  await sql`select pg_reload_conf()`
  await sql.end()
})
afterAll(() => server?.close())

/** Whether a process that trusts these authorities gets an encrypted session, or the code of its refusal. */
async function connect(host: string, sslmode: string, trusted?: string): Promise<string> {
  const url = new URL(server.url)
  url.hostname = host
  url.searchParams.set('sslmode', sslmode)
  const program = `
    import { openDatabase } from '@tollkeeper/ledger/store/database'
    const sql = openDatabase({ url: process.argv[1], max: 1, applicationName: 'tls' })
    const [row] = await sql\`select ssl from pg_stat_ssl where pid = pg_backend_pid()\`.catch((error) => [error])
    console.log(row.code ?? (row.ssl ? 'encrypted' : 'plain'))
    await sql.end({ timeout: 1 })`
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--input-type=module', '--eval', program, '--', url.href],
    { env: { PATH: process.env.PATH, NODE_EXTRA_CA_CERTS: trusted } },
  )
  return stdout.trim()
}

test('default: verify-full takes a certificate for this host of an authority that it trusts', async () => {
  expect(await connect('localhost', 'verify-full', authority)).toBe('encrypted')
})

test('error: verify-full refuses another host, and an authority that nobody named', async () => {
  expect(await connect('127.0.0.1', 'verify-full', authority)).toBe('ERR_TLS_CERT_ALTNAME_INVALID')
  expect(await connect('localhost', 'verify-full')).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE')
})

test('args: `require` encrypts and asks for no certificate; `disable` does neither', async () => {
  expect(await connect('127.0.0.1', 'require')).toBe('encrypted')
  expect(await connect('127.0.0.1', 'disable')).toBe('plain')
})
