import { setTimeout as delay } from 'node:timers/promises'
import type { DatabaseServer } from '@tollkeeper/runtime/databaseUrl'
import { ConfigError } from '@tollkeeper/runtime/env'
import postgres from 'postgres'
import { databaseServerOf, placeOf, tlsOptionsOf } from './databaseServer.ts'
import { ConnectionLost, DatabaseSocket, type DatabaseSocketOptions } from './databaseSocket.ts'
import { oneAtATime } from './oneAtATime.ts'

/** Schema of our tables. Ponder's tables are in another schema, and we only read them (`halves.ts`). */
export const schema = 'tollkeeper'

export type Database = postgres.Sql<{ bigint: bigint }>
export type Transaction = postgres.TransactionSql<{ bigint: bigint }>
/** A query function takes the pool, or a transaction that its caller opened. */
export type Queryable = Database | Transaction

export type DatabaseOptions = {
  /** URL of the server, `postgres://…`. */
  url: string
  /** Connects to another server with the same credentials and parameters. */
  at?: { host: string; port: number }
  /** Maximum number of connections. */
  max?: number
  /** Shown in `pg_stat_activity`. */
  applicationName: string
  /**
   * Maximum time in ms for which the server keeps the locks of a client that is frozen or lost between two statements of a transaction. No
   * transaction lasts longer than twice that, which also covers clients that are lost in the middle of a statement. Default 5,000.
   */
  idleInTransactionMs?: number
  /**
   * Time in ms after which a silent connection counts as lost. Default 10,000, which is longer than any statement. Unlimited if `limited`
   * is false.
   */
  silenceMs?: number
  /** False for slow work such as migrations: sessions have no limits. Default true. */
  limited?: boolean
  /** Whether the server may be older than Postgres 17, which introduced `transaction_timeout`. */
  isOlder?: boolean
  /** The URL is that of a pooler in transaction mode, which sets `search_path` and the limits of its sessions (see `pooler.ts`). */
  isPooled?: boolean
}

// Each limit is longer than the previous one, so that the most specific limit fires first: the limit for a lock, then for a statement, then for a
// silent connection (docs/postgres.md, "Limits of sessions"). A connection that is silent for longer than any statement may take must be dead.
const lockMs = 5_000
const statementMs = 8_000
const defaultSilenceMs = 10_000
/** TCP keepalive settings by which the server detects a lost host: after 5 s without traffic it sends four probes, one second apart. */
export const lostHostLimits = {
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 1,
  tcp_keepalives_count: 4,
  tcp_user_timeout: defaultSilenceMs,
}
/** Maximum seconds for which a connection may be idle. We close it before its silence could count as a loss. */
export const idleSeconds = 5
const connectSeconds = 5
const defaultIdleInTransactionMs = 5_000

/** Returns the settings of each of our sessions, which the session or its pooler sets. Times are in milliseconds. */
export function sessionSettings(idleInTransactionMs = defaultIdleInTransactionMs) {
  // If a client is lost while it sends a statement's messages, the server counts its session as active, not as idle. Only this limit ends such a
  // session.
  const transactionMs = 2 * idleInTransactionMs
  return {
    search_path: schema,
    // `transaction_timeout` ends the session, and we then replace the whole pool. So a slow statement must hit a shorter limit first.
    lock_timeout: Math.min(lockMs, Math.floor(transactionMs / 2)),
    statement_timeout: Math.min(statementMs, Math.floor(transactionMs * 0.8)),
    idle_in_transaction_session_timeout: idleInTransactionMs,
    transaction_timeout: transactionMs,
  }
}
/** Time in ms for which a pool that lost one connection lets its other connections finish. */
const graceMs = 1_000
/** Pause in ms before we connect again to a server that didn't answer. */
const pauseMs = 100
/** Default time in seconds for which running queries may continue after the database was closed. */
const endSeconds = 10

/**
 * Opens a lazy connection pool with `search_path` set to our schema.
 *
 * `bigint` and `numeric` columns are returned as `bigint`, since all of them hold whole base units, seconds or blocks.
 *
 * A pool that loses a connection is replaced as a whole, since postgres.js 3.4.9 doesn't survive that loss (see `databaseSocket.ts`). Later queries
 * go to the new pool. Queries in the old pool have a second to finish.
 */
export function openDatabase(options: DatabaseOptions): Database {
  const server = { ...databaseServerOf(options.url), ...options.at }
  const tls = server.tls && { ...tlsOptionsOf(server.tls), optional: server.tls.isOptional }
  const retiring = new Set<Promise<void>>()
  let isEnded = false
  let wasAnswered = true
  let current = open()

  function open(): Pool {
    const sockets = new Set<DatabaseSocket>()
    const lost = new Set<DatabaseSocket>()
    let isRetired = false
    let isCut = false
    const sql = openPool(server, options, async (where) => {
      // Without the pause, each query would immediately try to connect, although the server is known to be down.
      if (!wasAnswered) await delay(pauseMs)
      if (isCut) throw new ConnectionLost('the pool was closed before the connection was opened')
      const socket = new DatabaseSocket({ ...where, ...(tls && { tls }), onLost })
      sockets.add(socket)
      return socket.once('close', () => sockets.delete(socket))
    })
    function onLost(socket: DatabaseSocket) {
      lost.add(socket)
      wasAnswered = socket.isAnswered
      if (isRetired) return
      isRetired = true
      if (!isEnded) current = open()
      const retired = retire().finally(() => retiring.delete(retired))
      retiring.add(retired)
    }
    async function retire(): Promise<void> {
      await delay(graceMs)
      // Rejects the remaining queries, and all statements that a lost transaction may still send.
      await endPool(0)
      for (const socket of lost) socket.release()
    }
    async function endPool(seconds: number): Promise<void> {
      const timer = setTimeout(cutStarts, seconds * 1_000)
      if (seconds === 0) cutStarts()
      await sql.end({ timeout: seconds })
      clearTimeout(timer)
      isCut = true
    }
    /** Call this just before postgres.js destroys its connections: a session that is still starting doesn't survive that. */
    function cutStarts(): void {
      isCut = true
      for (const socket of sockets) socket.cutStart()
    }
    return { sql, end: endPool }
  }

  async function end({ timeout = endSeconds }: { timeout?: number } = {}): Promise<void> {
    isEnded = true
    await Promise.all([current.end(timeout), ...retiring])
  }

  return new Proxy(current.sql, {
    apply: (_target, _this, args) => Reflect.apply(current.sql, undefined, args),
    get: (_target, key) => (key === 'end' ? end : Reflect.get(current.sql, key)),
  })
}

type Pool = {
  sql: Database
  /** Rejects new queries immediately, and running queries after `seconds`. */
  end: (seconds: number) => Promise<void>
}

/** The oldest Postgres that knows `transaction_timeout`. */
const oldestPostgres = 17

/**
 * Checks the server version at startup. Use a connection without limits, since older servers reject our session settings. This function also rejects
 * a standby, and a pooler, because migrations and Ponder need dedicated sessions.
 *
 * @throws {ConfigError}
 */
export async function requirePostgres(unlimited: Queryable, oldest = oldestPostgres): Promise<void> {
  const rows = await unlimited<{ number: number; version: string; pid: number; isStandby: boolean }[]>`
    select current_setting('server_version_num')::integer as number, current_setting('server_version') as version,
      pg_backend_pid() as pid, pg_is_in_recovery() as "isStandby"`.catch((error: unknown) => {
    throw isPoolerRefusal(error) ? poolerInTheWay() : error
  })
  const [row] = rows
  // A pooler gives its clients invented process ids.
  if (row && (rows.state as unknown as { pid: number }).pid !== row.pid) throw poolerInTheWay()
  if (row === undefined || row.number < oldest * 10_000) {
    throw new ConfigError(
      'DATABASE_URL',
      `a server of Postgres ${oldest} or later`,
      `Postgres ${row?.version}`,
    )
  }
  // The same check as `target_session_attrs=read-write`. We need the primary even if the URL doesn't ask for it.
  if (row.isStandby) throw new ConfigError('DATABASE_URL', 'the primary, which accepts writes', 'a standby')
}

/** PgBouncer rejects startup parameters that its configuration doesn't list in `ignore_startup_parameters`. */
function isPoolerRefusal(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('unsupported startup parameter')
}

function poolerInTheWay(): ConfigError {
  return new ConfigError(
    'DATABASE_DIRECT_URL',
    'the URL of Postgres itself, for migrations and the indexer, in addition to a DATABASE_URL of a connection pooler',
    'a connection pooler',
  )
}

/**
 * Like {@link requirePostgres}, but opens a connection for the check, because an older server would refuse the caller's connections.
 *
 * @param silenceMs maximum time in ms for the server's answer.
 */
export async function requirePostgresAt(url: string, silenceMs = defaultSilenceMs): Promise<void> {
  const sql = openDatabase({ url, max: 1, applicationName: 'tollkeeper-start', limited: false, silenceMs })
  await requirePostgres(sql).finally(() => sql.end({ timeout: 1 }))
}

type Where = Pick<DatabaseSocketOptions, 'path' | 'host' | 'port' | 'silenceMs'>

function openPool(
  server: DatabaseServer,
  options: DatabaseOptions,
  openSocket: (where: Where) => Promise<DatabaseSocket>,
): Database {
  const {
    max = 10,
    applicationName,
    idleInTransactionMs,
    limited = true,
    silenceMs = limited ? defaultSilenceMs : undefined,
    isPooled = false,
    isOlder = false,
  } = options
  const { search_path, transaction_timeout, ...others } = sessionSettings(idleInTransactionMs)
  const limits = { ...others, ...(!isOlder && { transaction_timeout }) }
  const place = placeOf(server)
  const poolOptions = {
    ...place,
    max,
    onnotice: () => {},
    connection: {
      ...place.connection,
      application_name: applicationName,
      ...(!isPooled && { search_path, ...(limited && { ...limits, ...lostHostLimits }) }),
    },
    // A pooler may run the next transaction in another session, which doesn't have the prepared statement.
    prepare: !isPooled,
    ...(limited && { idle_timeout: idleSeconds }),
    // Our socket handles TLS.
    ssl: false,
    socket: ({ path, host: [host = 'localhost'], port: [port = 5432] }: ServerOptions) =>
      openSocket({ host, port, ...(path && { path }), ...(silenceMs !== undefined && { silenceMs }) }),
    connect_timeout: server.connectSeconds ?? connectSeconds,
    types: {
      // 20: int8, 1700: numeric. BigInt() throws on a numeric with a fraction, as intended.
      bigint: { to: 20, from: [20, 1700], serialize: String, parse: BigInt },
    },
  }
  // The types of postgres.js lack lists of hosts and ports, and `socket`.
  return oneAtATime(
    postgres(poolOptions as unknown as postgres.Options<{ bigint: postgres.PostgresType<bigint> }>),
  )
}

/** The pool's options that postgres.js passes to `socket`. */
type ServerOptions = { path?: string | false; host: string[]; port: number[] }
