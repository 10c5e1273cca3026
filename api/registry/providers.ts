import type { Queryable } from '#ledger/database'
import { newId } from '../identifiers.ts'

export type Provider = {
  providerId: string
  name: string
  contact: string | null
  /** Whether `/verify` for its endpoints requires its API key. */
  requiresKey: boolean
  createdAt: Date
}

const columns = (sql: Queryable) =>
  sql`id as "providerId", name, contact, requires_key as "requiresKey", created_at as "createdAt"`

export async function insertProvider(
  sql: Queryable,
  { name, contact, requiresKey }: { name: string; contact: string | null; requiresKey: boolean },
): Promise<Provider> {
  const [row] = await sql<[Provider]>`
    insert into provider (id, name, contact, requires_key) values (${newId('prov')}, ${name}, ${contact}, ${requiresKey})
    returning ${columns(sql)}`
  return row
}

export async function findProvider(sql: Queryable, providerId: string): Promise<Provider | undefined> {
  const [row] = await sql<Provider[]>`select ${columns(sql)} from provider where id = ${providerId}`
  return row
}
