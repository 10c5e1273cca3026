import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Postgres } from '../../../apps/devstack/stack/postgres.ts'
import { authorityFile as authority, startTlsPostgres } from '../../../test/support/tlsPostgres.ts'

// TLS to a real Postgres whose certificate is for `localhost`, signed by a test authority (test/support/tls).

let server: Postgres
beforeAll(async () => {
  server = await startTlsPostgres()
})
afterAll(() => server?.close())

/** Connects in a process that trusts the given authorities. Returns whether the session is encrypted, or the error code. */
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

test('default: verify-full accepts a certificate for this host from a trusted authority', async () => {
  expect(await connect('localhost', 'verify-full', authority)).toBe('encrypted')
})

test('error: verify-full rejects another host, and an authority that isn’t trusted', async () => {
  expect(await connect('127.0.0.1', 'verify-full', authority)).toBe('ERR_TLS_CERT_ALTNAME_INVALID')
  expect(await connect('localhost', 'verify-full')).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE')
})

test('args: `require` encrypts without verifying the certificate; `disable` does neither', async () => {
  expect(await connect('127.0.0.1', 'require')).toBe('encrypted')
  expect(await connect('127.0.0.1', 'disable')).toBe('plain')
})
