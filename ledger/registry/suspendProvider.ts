import type { Database } from '../store/database.ts'
import { changeRegistry } from './registryChanges.ts'

/**
 * The operator's switch: suspends a provider, which then sells nothing new and can't lift it, or lets it sell again.
 *
 * @returns false where there is no such provider.
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
