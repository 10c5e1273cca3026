import postgres from 'postgres'
import { DatabaseSocket } from './databaseSocket.ts'

/** Schema of our own tables. Ponder's live elsewhere and are only read, see `halves.ts`. */
export const schema = 'tollkeeper'

export type Database = postgres.Sql<{ bigint: bigint }>
export type Transaction = postgres.TransactionSql<{ bigint: bigint }>
/** What a query function takes: the pool, or a transaction that its caller opened. */
export type Queryable = Database | Transaction

export type DatabaseOptions = {
  /** `postgres://…` of the server. */
  url: string
  /** Connections at most. */
  max?: number
  /** Shown in `pg_stat_activity`. */
  applicationName: string
  /** How long the server keeps the locks of a client that is frozen or lost in a transaction. Default 5,000. */
  idleInTransactionMs?: number
  /** False for what may take its time, such as migrations: no limit holds. Default true. */
  limited?: boolean
}

// Each limit is longer than the one before it, so that the party that knows more ends things first: a lock that isn't had,
// a statement, and last the connection, which then is known to be dead (docs/operations.md, "Silent connections").
const lockMs = 5_000
const statementMs = 8_000
const silenceMs = 10_000
/** Connections that rest are closed before their silence could be taken for death. */
const idleSeconds = 5
const connectSeconds = 5

/**
 * Opens a lazy connection pool with `search_path` set to our schema.
 *
 * `bigint` and `numeric` columns arrive as `bigint`: every one of them holds whole base units, seconds or blocks.
 */
export function openDatabase(options: DatabaseOptions): Database {
  const { url, max = 10, applicationName, idleInTransactionMs = 5_000, limited = true } = options
  return postgres(url, {
    max,
    onnotice: () => {},
    connection: {
      application_name: applicationName,
      search_path: schema,
      ...(limited && {
        lock_timeout: lockMs,
        statement_timeout: statementMs,
        idle_in_transaction_session_timeout: idleInTransactionMs,
        // For the server to notice a host that is gone: 5 s of rest, then four probes a second apart.
        tcp_keepalives_idle: 5,
        tcp_keepalives_interval: 1,
        tcp_keepalives_count: 4,
        tcp_user_timeout: silenceMs,
      }),
    },
    ...(limited && { idle_timeout: idleSeconds, socket: openSocket }),
    connect_timeout: connectSeconds,
    // postgres.js' own waits for up to 20 s once connections have failed, all of them together.
    backoff: () => 0.1 + Math.random() * 0.2,
    types: {
      // 20: int8, 1700: numeric. A numeric with a fraction would throw in BigInt(), as it should.
      bigint: { to: 20, from: [20, 1700], serialize: String, parse: BigInt },
    },
  })
}

/** What postgres.js asks for a socket: its options, with every host that the URL names. */
function openSocket({ path, host, port }: { path?: string | false; host: string[]; port: number[] }) {
  const [name = 'localhost'] = host
  const socket = new DatabaseSocket(name, silenceMs)
  return path ? socket.connect(path) : socket.connect(port[0] ?? 5432, name)
}
