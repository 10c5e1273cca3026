import { openDatabase } from '@tollkeeper/ledger/store/database'
import { describePending, readSchemaState } from '@tollkeeper/ledger/store/migrate'
import { createProviderAsOperator } from '../provider/operator.ts'

/** The first provider, or the reason why none was created. */
export type FirstProvider =
  | { status: 'created'; providerId: string; apiKey: string }
  | { status: 'exists'; reason: string }
  | { status: 'not_yet'; reason: string }

const timeoutMs = 5_000

/**
 * Creates the first provider and its API key if the database is reachable, up to date and without a provider.
 */
export async function createFirstProvider(url: string, name: string): Promise<FirstProvider> {
  const sql = openDatabase({ url, max: 1, applicationName: 'tollkeeper-init' })
  const timer = Promise.withResolvers<never>()
  const timeout = setTimeout(
    () => timer.reject(new Error(`no response within ${timeoutMs / 1_000} s`)),
    timeoutMs,
  )
  try {
    return await Promise.race([create(), timer.promise])
  } catch (error) {
    // The error's message may contain the host of the URL, but never the password.
    return { status: 'not_yet', reason: `the database can't be used: ${(error as Error).message}` }
  } finally {
    clearTimeout(timeout)
    await sql.end({ timeout: 1 })
  }

  async function create(): Promise<FirstProvider> {
    const state = await readSchemaState(sql)
    if (state.refusal) return { status: 'not_yet', reason: state.refusal.message }
    const pending = describePending(state)
    if (state.applied.length === 0)
      return { status: 'not_yet', reason: 'the database is empty. The api creates its tables when it starts' }
    if (pending !== null) return { status: 'not_yet', reason: `the database ${pending}` }
    const [known] = await sql<{ id: string }[]>`select id from provider limit 1`
    if (known !== undefined)
      return { status: 'exists', reason: `the database has providers, such as ${known.id}` }
    const { providerId, apiKey } = await createProviderAsOperator(sql, { name })
    return { status: 'created', providerId, apiKey }
  }
}
