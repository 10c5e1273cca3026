import { databaseServerOf, speaksTls, tlsOptionsOf } from '@tollkeeper/ledger/store/databaseServer'

const connectSeconds = 5

/**
 * Returns the options of node-postgres' pool, which Ponder uses, that say where to connect to. node-postgres gives `sslmode` other
 * meanings than libpq does, and insists on TLS under `prefer`; so it gets no URL, and the server is asked here.
 */
export async function poolServer(url: string) {
  const server = databaseServerOf(url)
  const { host, port, user, password, database, tls, sessionOptions } = server
  const isEncrypted = tls !== null && (!tls.isOptional || (await speaksTls(server).catch(() => false)))
  return {
    // Ponder would take the variable DATABASE_URL, and node-postgres prefers a text to all options.
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
