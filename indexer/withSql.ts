import { connectPlainly } from '@tollkeeper/ledger/store/databaseServer'
import type postgres from 'postgres'

/** Uses a connection to the index's database, and ends it. */
export async function withSql<Result>(
  databaseUrl: string,
  use: (sql: postgres.Sql) => Promise<Result>,
): Promise<Result> {
  const sql = connectPlainly(databaseUrl)
  try {
    return await use(sql)
  } finally {
    await sql.end()
  }
}
