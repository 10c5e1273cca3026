import { setTimeout as delay } from 'node:timers/promises'
import type { DatabaseServer } from '@tollkeeper/runtime/databaseUrl'
import { ConfigError } from '@tollkeeper/runtime/env'
import postgres from 'postgres'
import { databaseServerOf, placeOf, tlsOptionsOf } from './databaseServer.ts'
import { ConnectionLost, DatabaseSocket, type DatabaseSocketOptions } from './databaseSocket.ts'
import { oneAtATime } from './oneAtATime.ts'

/** Schema of our own tables. Ponder's are elsewhere, and we only read them (`halves.ts`). */
export const schema = 'tollkeeper'

export type Database = postgres.Sql<{ bigint: bigint }>
export type Transaction = postgres.TransactionSql<{ bigint: bigint }>
/** A query function takes the pool, or a transaction that its caller opened. */
export type Queryable = Database | Transaction

export type DatabaseOptions = {
  /** `postgres://…` of the server. */
  url: string
  /** Another server with the same credentials and parameters. */
  at?: { host: string; port: number }
  /** Connections at most. */
  max?: number
  /** Shown in `pg_stat_activity`. */
  applicationName: string
  /**
   * How long the server keeps the locks of a client that is frozen or lost between two statements of a transaction. No
   * transaction lasts longer than twice that, which bounds clients that are lost amid a statement. Default 5,000.
   */
  idleInTransactionMs?: number
  /**
   * How long a connection may be silent before it counts as lost, in ms. Default 10,000, which is longer than any statement; without
   * limits: for ever.
   */
  silenceMs?: number
  /** False for slow work such as migrations: no session has a limit. Default true. */
  limited?: boolean
  /** The server may be older than 17, without `transaction_timeout`. */
  isOlder?: boolean
  /** The URL is a pooler's, in transaction mode: the pooler sets `search_path` and limits of its sessions (see `pooler.ts`). */
  isPooled?: boolean
}

// Each limit is longer than the one before it, so that the party that knows more ends things first: a wait for a lock,
// a statement, and last the connection, which is known to be dead by then (docs/operations.md, "Silent connections").
const lockMs = 5_000
const statementMs = 8_000
const defaultSilenceMs = 10_000
/** Lets the server notice a lost host: after 5 s of rest it sends four probes, a second apart. */
export const lostHostLimits = {
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 1,
  tcp_keepalives_count: 4,
  tcp_user_timeout: defaultSilenceMs,
}
/** How long a connection may rest. We close it before its silence could be taken for death. */
export const idleSeconds = 5
const connectSeconds = 5
const defaultIdleInTransactionMs = 5_000

/** What each of our sessions sets, or a pooler for it; times in milliseconds. */
export function sessionSettings(idleInTransactionMs = defaultIdleInTransactionMs) {
  // A client that is lost between the messages of one statement counts as active, so no other limit ends it.
  const transactionMs = 2 * idleInTransactionMs
  return {
    search_path: schema,
    // The end of a transaction ends its session, which replaces the pool. So a slow statement must end by a limit of its own.
    lock_timeout: Math.min(lockMs, Math.floor(transactionMs / 2)),
    statement_timeout: Math.min(statementMs, Math.floor(transactionMs * 0.8)),
    idle_in_transaction_session_timeout: idleInTransactionMs,
    transaction_timeout: transactionMs,
  }
}
/** How long a pool that lost one connection lets its other connections finish. */
const graceMs = 1_000
/** Pause before we connect again to a server that didn't answer. */
const pauseMs = 100
/** How long queries may go on after the database was closed, unless the caller says otherwise. */
const endSeconds = 10

/**
 * Opens a lazy connection pool with `search_path` set to our schema.
 *
 * `bigint` and `numeric` columns arrive as `bigint`: every one of them holds whole base units, seconds or blocks.
 *
 * A pool that loses a connection is replaced as a whole, since postgres.js 3.4.9 doesn't survive that loss (see
 * `databaseSocket.ts`). Later queries go to the new pool; those of the old one have a second to finish.
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
      // Each query would try to connect at once, though we know that the server is away.
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
      // Refuses the remaining queries, and all that a lost transaction may still send.
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
    /** Call it just before postgres.js destroys its connections, since a session that is starting doesn't survive that. */
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
  /** Refuses new queries at once, and running ones after `seconds`. */
  end: (seconds: number) => Promise<void>
}

/** The oldest Postgres that knows `transaction_timeout`. */
const oldestPostgres = 17

/**
 * Call it at the start of whatever uses the database, without limits, since an older server takes none of our sessions. It also
 * refuses a pooler, because migrations and Ponder need sessions of their own, and a standby.
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
  // A pooler gives its clients process ids that it makes up.
  if (row && (rows.state as unknown as { pid: number }).pid !== row.pid) throw poolerInTheWay()
  if (row === undefined || row.number < oldest * 10_000) {
    throw new ConfigError(
      'DATABASE_URL',
      `a server of Postgres ${oldest} or later`,
      `Postgres ${row?.version}`,
    )
  }
  // What `target_session_attrs=read-write` asks for. A URL without it needs the primary just as much.
  if (row.isStandby) throw new ConfigError('DATABASE_URL', 'the primary, which accepts writes', 'a standby')
}

/** PgBouncer refuses startup parameters that it isn't told to ignore. */
function isPoolerRefusal(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith('unsupported startup parameter')
}

function poolerInTheWay(): ConfigError {
  return new ConfigError(
    'DATABASE_DIRECT_URL',
    'the URL of Postgres itself, for migrations and the indexer, beside a DATABASE_URL that is a connection pooler’s',
    'a connection pooler',
  )
}

/**
 * As {@link requirePostgres}, for callers without a session that an older server would take.
 *
 * @param silenceMs how long the server may take for its answer.
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
    // The next transaction may have another session, which lacks a prepared statement of that name.
    prepare: !isPooled,
    ...(limited && { idle_timeout: idleSeconds }),
    // Our socket speaks TLS.
    ssl: false,
    socket: ({ path, host: [host = 'localhost'], port: [port = 5432] }: ServerOptions) =>
      openSocket({ host, port, ...(path && { path }), ...(silenceMs !== undefined && { silenceMs }) }),
    connect_timeout: server.connectSeconds ?? connectSeconds,
    types: {
      // 20: int8, 1700: numeric. A numeric with a fraction would throw in BigInt(), as it should.
      bigint: { to: 20, from: [20, 1700], serialize: String, parse: BigInt },
    },
  }
  // Its types lack lists of hosts and ports, and `socket`.
  return oneAtATime(
    postgres(poolOptions as unknown as postgres.Options<{ bigint: postgres.PostgresType<bigint> }>),
  )
}

/** The pool's own options, as postgres.js passes them to `socket`. */
type ServerOptions = { path?: string | false; host: string[]; port: number[] }
