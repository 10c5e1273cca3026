import postgres from 'postgres'

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
}

/**
 * Opens a lazy connection pool with `search_path` set to our schema.
 *
 * `bigint` and `numeric` columns arrive as `bigint`: every one of them holds whole base units, seconds or blocks.
 */
export function openDatabase({ url, max = 10, applicationName }: DatabaseOptions): Database {
  return postgres(url, {
    max,
    onnotice: () => {},
    connection: { application_name: applicationName, search_path: schema },
    types: {
      // 20: int8, 1700: numeric. A numeric with a fraction would throw in BigInt(), as it should.
      bigint: { to: 20, from: [20, 1700], serialize: String, parse: BigInt },
    },
  })
}
