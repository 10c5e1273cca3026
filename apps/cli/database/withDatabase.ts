import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { describePending, readSchemaState } from '@tollkeeper/ledger/store/migrate'
import { readDatabaseUrls } from '@tollkeeper/ledger/store/pooler'
import { CliError } from '../terminal/cliError.ts'

/**
 * Opens the gateway's database for a command, without migrating it.
 *
 * @throws {CliError} if the schema belongs to another version, because the command would misread or damage it.
 */
export async function withDatabase<Result>(
  command: string,
  act: (sql: Database) => Promise<Result>,
): Promise<Result> {
  const { directDatabaseUrl: url } = readDatabaseUrls(process.env)
  const sql = openDatabase({ url, max: 1, applicationName: `tollkeeper-${command}` })
  try {
    const state = await readSchemaState(sql)
    const { refusal } = state
    if (refusal) throw new CliError('other_schema', refusal.message, refusal)
    const pending = describePending(state)
    if (pending !== null) {
      throw new CliError(
        'schema_pending',
        `The database ${pending}. Start the api or the keeper first: each of them migrates the schema`,
      )
    }
    return await act(sql)
  } finally {
    await sql.end({ timeout: 1 })
  }
}
