import { databaseServerOf, speaksTls, tlsOptionsOf } from '@tollkeeper/ledger/store/databaseServer'

const connectSeconds = 5

/**
 * Returns the connection options of node-postgres' pool, which Ponder uses. node-postgres interprets `sslmode` differently from libpq, and requires
 * TLS for `prefer`. So Ponder gets separate options instead of the URL. For `prefer`, this function checks whether the server supports TLS.
 */
export async function poolServer(url: string) {
  const server = databaseServerOf(url)
  const { host, port, user, password, database, tls, sessionOptions } = server
  const isEncrypted = tls !== null && (!tls.isOptional || (await speaksTls(server).catch(() => false)))
  return {
    // Unset the connection string explicitly. Otherwise Ponder would use DATABASE_URL, which node-postgres prefers to all other options.
    connectionString: undefined,
    host,
    port,
    user,
    password,
    database,
    ssl: isEncrypted ? tlsOptionsOf(tls) : false,
    options: sessionOptions ?? '',
    connectionTimeoutMillis: (server.connectSeconds ?? connectSeconds) * 1_000,
  }
}
