import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'

/**
 * Opens a connection to the index's database, passes it to `use`, and ends it. If the connection is lost, statements are rejected
 * at once (`ECONNRESET`), and ending the connection doesn't wait for the server.
 */
export async function withSql<Result>(
  databaseUrl: string,
  use: (sql: Database) => Promise<Result>,
): Promise<Result> {
  // Without time limits, because building a database index may take an hour.
  const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'tollkeeper-index', limited: false })
  try {
    return await use(sql)
  } finally {
    await sql.end({ timeout: 1 })
  }
}
