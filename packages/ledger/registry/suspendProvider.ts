import type { Address } from 'viem'
import type { Database, Queryable } from '../store/database.ts'
import { changeRegistry } from './registryChanges.ts'

/**
 * Suspends a provider for the operator, or lifts the suspension. A suspended provider can't make new sales, and can't lift the suspension
 * itself.
 *
 * @returns false if there is no such provider.
 */
export async function setSuspended(
  sql: Database,
  providerId: string,
  suspendedAt: Date | null,
): Promise<boolean> {
  const done = await changeRegistry(sql, { providerId, by: null }, async (tx, record) => {
    const [before] = await tx<[{ suspendedAt: Date | null }]>`
      select suspended_at as "suspendedAt" from provider where id = ${providerId}`
    if ((before.suspendedAt === null) === (suspendedAt === null)) return true
    await tx`update provider set suspended_at = ${suspendedAt}, version = version + 1 where id = ${providerId}`
    await record(providerId, before, { suspendedAt })
    return true
  })
  return done ?? false
}

/** Returns the condition that the provider `p` makes no new sales, because it disabled itself or the operator suspended it. */
export function isClosed(sql: Queryable) {
  return sql`coalesce(p.suspended_at, p.disabled_at) is not null`
}

export async function isClosedProvider(sql: Queryable, providerId: string): Promise<boolean> {
  const rows = await sql`select from provider p where p.id = ${providerId} and ${isClosed(sql)}`
  return rows.length > 0
}

/**
 * Finds the recipients that belong to a suspended provider: its wallets, and splitters that pay these wallets. Anyone may register any address,
 * so an address doesn't count if another provider has it as well, or if it was registered after the suspension.
 */
export async function findSuspendedPayees(
  sql: Queryable,
  { chainId, token }: { chainId: number; token: Address },
  recipients: readonly Address[],
): Promise<Set<Address>> {
  const rows = await sql<{ address: Address }[]>`
    select paid.address
    from (
      select asked.address, coalesce(s.provider, asked.address) as wallet
      from unnest(${[...new Set(recipients)]}::text[]) as asked (address)
      left join splitter s on s.chain_id = ${chainId} and s.token = ${token} and s.address = asked.address
    ) paid
    join wallet w on w.chain_id = ${chainId} and w.address = paid.wallet
    join provider p on p.id = w.provider_id
    group by paid.address
    having bool_and(p.suspended_at is not null and w.created_at <= p.suspended_at)`
  return new Set(rows.map(({ address }) => address))
}
