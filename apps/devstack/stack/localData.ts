import { withSql } from '@tollkeeper/indexer/withSql'
import { schema } from '@tollkeeper/ledger/store/database'

const mark = 'tollkeeper: of a local chain that is gone when its process ends'

/**
 * Empties a database that an earlier `npm start` used, and marks it as one that may be emptied.
 *
 * All local chains have the same chain id and addresses, so rows about an earlier chain would look like rows about this one. A
 * database without the mark is rejected, because it may be a real gateway's.
 */
export function clearLocalChainData(databaseUrl: string): Promise<void> {
  return withSql(databaseUrl, async (sql) => {
    const [found] = await sql<{ mark: string | null }[]>`
      select obj_description(oid, 'pg_namespace') as mark from pg_namespace where nspname = ${schema}`
    if (found && found.mark !== mark) {
      throw new Error(
        `DATABASE_URL: expected an empty database, because the local chain is new each time, but this database contains the data of a gateway (schema ${schema}). Use another database, or unset DATABASE_URL`,
      )
    }
    const stale = await sql<{ name: string }[]>`
      select nspname as name from pg_namespace
      where ${found !== undefined} and (nspname in (${schema}, 'ponder_sync') or nspname ~ '^indexer(_[0-9a-f]+)?$')`
    for (const { name } of stale) await sql`drop schema ${sql(name)} cascade`
    await sql`create schema ${sql(schema)}`
    await sql.unsafe(`comment on schema ${schema} is '${mark}'`)
  })
}
