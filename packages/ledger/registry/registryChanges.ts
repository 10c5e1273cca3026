import type { Database, Queryable, Transaction } from '../store/database.ts'

/** The provider, and who changes it: the id of an API key, or null for the operator, who has access to the database. */
export type Changer = { providerId: string; by: string | null }

/**
 * Stores a change of `subject`: the provider, or one of its wallets, endpoints or keys. It stores only the fields of the old state that
 * differ, and nothing if no field differs.
 *
 * @param before null if the subject is new
 */
export type RecordChange = (subject: string, before: object | null, after: object) => Promise<void>

/**
 * Changes a provider's registration, and stores the change in its history. It locks the provider, so that the values that `change` reads stay valid
 * until it's done.
 *
 * @returns undefined if there is no such provider
 */
export async function changeRegistry<T>(
  sql: Database,
  { providerId, by }: Changer,
  change: (tx: Transaction, record: RecordChange) => Promise<T>,
): Promise<T | undefined> {
  const result = await sql.begin(async (tx) => {
    // This lock lets payments, which refer to the row, be accepted in the meantime.
    const found = await tx`select from provider where id = ${providerId} for no key update`
    if (found.length === 0) return undefined
    return { done: await change(tx, recordChange(tx, { providerId, by })) }
  })
  return result?.done as T | undefined
}

/**
 * Creates the function that stores changes. Use it only in the transaction that inserts the provider itself. For later changes, use {@link
 * changeRegistry}.
 */
export function recordChange(tx: Queryable, { providerId, by }: Changer): RecordChange {
  return async (subject, before, after) => {
    const was = before && fieldsOf(before)
    const is = fieldsOf(after)
    const names = Object.keys(is).filter((name) => JSON.stringify(was?.[name]) !== JSON.stringify(is[name]))
    if (was !== null && names.length === 0) return
    const pick = (fields: Record<string, unknown>) =>
      JSON.stringify(Object.fromEntries(names.map((name) => [name, fields[name]])))
    await tx`
      insert into registry_change (provider_id, key_id, subject, before, after)
      values (${providerId}, ${by}, ${subject}, ${was && pick(was)}::text::jsonb, ${pick(is)}::text::jsonb)`
  }
}

/** Returns the fields with their values as JSON would contain them. */
function fieldsOf(thing: object): Record<string, unknown> {
  return JSON.parse(JSON.stringify(thing))
}

export type RegistryChange = {
  id: bigint
  changedAt: Date
  /** The id of an API key; null for the operator. */
  keyId: string | null
  subject: string
  before: Record<string, unknown> | null
  after: Record<string, unknown>
}

/** @param position of the last change on the previous page; the newest change comes first */
export async function listRegistryChanges(
  sql: Queryable,
  providerId: string,
  { position, limit }: { position: { id: number } | null; limit: number },
): Promise<RegistryChange[]> {
  return sql<RegistryChange[]>`
    select id, changed_at as "changedAt", key_id as "keyId", subject, before, after
    from registry_change
    where provider_id = ${providerId} ${position === null ? sql`` : sql`and id < ${position.id}`}
    order by id desc limit ${limit}`
}
