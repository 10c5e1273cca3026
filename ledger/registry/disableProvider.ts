import type { Database } from '../store/database.ts'
import { changeRegistry } from './registryChanges.ts'

/**
 * Stops a provider's sales as the operator, or allows them again: no new challenge is given meanwhile.
 *
 * @returns false where there is no such provider.
 */
export async function setProviderDisabled(
  sql: Database,
  providerId: string,
  disabledAt: Date | null,
): Promise<boolean> {
  const done = await changeRegistry(sql, { providerId, by: null }, async (tx, record) => {
    const [before] = await tx<[{ disabledAt: Date | null }]>`
      select disabled_at as "disabledAt" from provider where id = ${providerId}`
    if ((before.disabledAt === null) === (disabledAt === null)) return true
    await tx`update provider set disabled_at = ${disabledAt}, version = version + 1 where id = ${providerId}`
    await record(providerId, before, { disabledAt })
    return true
  })
  return done ?? false
}
