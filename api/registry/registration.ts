import { timingSafeEqual } from 'node:crypto'
import { hashSecret } from '@tollkeeper/ledger/registry/apiKeys'
import type { Transaction } from '@tollkeeper/ledger/store/database'
import { Refusal } from '../http/refusal.ts'
import type { Registration } from '../http/settings.ts'
import { countQuota, dropOldQuotas } from './quota.ts'

const hourMs = 3_600_000

/**
 * Maximum registrations an hour: from one address (of IPv6, one /64), which a person who registers by hand doesn't reach, and from all
 * addresses together, which only a botnet reaches; then require a token.
 */
export const registrationsAnHour = { address: 5, total: 5_000 }

/** @throws {Refusal} `registration_closed`; `unauthorized` if it takes a token that the request lacks. */
export function requireAdmission(registration: Registration, presented: string | undefined): void {
  if (registration.mode === 'closed') throw new Refusal('registration_closed')
  if (registration.mode === 'open') return
  const isRight =
    presented !== undefined && timingSafeEqual(hashSecret(presented), hashSecret(registration.token))
  if (!isRight) throw new Refusal('unauthorized', 'Registration needs the operator’s Registration-Token')
}

/**
 * Counts a registration in the transaction that makes it.
 *
 * @throws {Refusal} `rate_limited` over the limit of an address or of all.
 */
export async function countRegistration(
  tx: Transaction,
  registration: Registration,
  address: string,
  now: number,
): Promise<void> {
  if (registration.mode !== 'open' || registration.limits === null) return
  const { limits } = registration
  const count = (counted: string, limit: number, what: string) =>
    countQuota(tx, { counted: `registration ${counted}`, limit, windowMs: hourMs, what }, now)
  // The address first, so that one over its own limit uses up nobody else's.
  await count(address, limits.address, 'registrations an hour from one address')
  await count('', limits.total, 'registrations an hour in all')
  await dropOldQuotas(tx, now)
}
