import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { openDatabase } from '@tollkeeper/ledger/store/database'
import { type Postgres, startPostgres } from '../../apps/devstack/stack/postgres.ts'

const folder = new URL('./tls/', import.meta.url)

/** The authority that signed the server's certificate. Processes don't trust it by default. */
export const authorityFile = fileURLToPath(new URL('ca.pem', folder))

/** Starts a Postgres that speaks TLS, with a certificate for `localhost`. */
export async function startTlsPostgres(): Promise<Postgres> {
  const server = await startPostgres({ fast: true })
  const sql = openDatabase({ url: server.url, max: 1, applicationName: 'administrator', limited: false })
  for (const name of ['server.pem', 'server.key']) {
    const lines = await readFile(new URL(name, folder), 'utf8')
    // The server writes the key as its own user, because it refuses a key that others may read.
    await sql.unsafe(
      `copy (select unnest(string_to_array('${lines.trim()}', e'\n'))) to program 'umask 077; cat > ${name}'`,
    )
  }
  await sql`alter system set ssl_cert_file = 'server.pem'`
  await sql`alter system set ssl_key_file = 'server.key'`
  await sql`alter system set ssl = on`
  await sql`select pg_reload_conf()`
  await sql.end()
  return server
}
