import { withSql } from '@tollkeeper/indexer/withSql'
import { schema } from '@tollkeeper/ledger/store/database'

const mark = 'tollkeeper: of a local chain that is gone when its process ends'

/**
 * Empties a database that an earlier `npm start` used, and marks it as one that may be emptied.
 *
 * Each local chain starts with the same chain id and addresses, so rows of an earlier one would look like its own. A
 * database without the mark is refused, since it may be somebody's gateway.
 */
export function clearLocalChainData(databaseUrl: string): Promise<void> {
  return withSql(databaseUrl, async (sql) => {
    const [found] = await sql<{ mark: string | null }[]>`
      select obj_description(oid, 'pg_namespace') as mark from pg_namespace where nspname = ${schema}`
    if (found && found.mark !== mark) {
      throw new Error(
        `DATABASE_URL: expected an empty database, since the local chain is a new one each time; this one holds the data of a gateway (schema ${schema})`,
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
