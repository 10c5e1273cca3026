import postgres from 'postgres'

/** Uses a connection to the index's database, and ends it. */
export async function withSql<Result>(
  databaseUrl: string,
  use: (sql: postgres.Sql) => Promise<Result>,
): Promise<Result> {
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  try {
    return await use(sql)
  } finally {
    await sql.end()
  }
}
