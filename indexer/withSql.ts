import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'

/**
 * Uses a connection to the index's database, and ends it. If it is lost, statements are rejected (`ECONNRESET`), and neither they nor
 * its end wait for the server.
 */
export async function withSql<Result>(
  databaseUrl: string,
  use: (sql: Database) => Promise<Result>,
): Promise<Result> {
  // No limit applies: building a database index may take an hour.
  const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'tollkeeper-index', limited: false })
  try {
    return await use(sql)
  } finally {
    await sql.end({ timeout: 1 })
  }
}
