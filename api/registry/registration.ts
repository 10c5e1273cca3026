import { timingSafeEqual } from 'node:crypto'
import { hashSecret } from '@tollkeeper/ledger/registry/apiKeys'
import type { Transaction } from '@tollkeeper/ledger/store/database'
import { Refusal } from '../http/refusal.ts'
import type { Registration } from '../http/settings.ts'
import { countQuota, dropOldQuotas } from './quota.ts'

const hourMs = 3_600_000

/**
 * Maximum number of registrations per hour: from one address (for IPv6, one /64), which is more than a person needs; and from all addresses
 * together, which only a botnet reaches (then require a token).
 */
export const registrationsAnHour = { address: 5, total: 5_000 }

/** @throws {Refusal} `registration_closed`; `unauthorized` if a token is required and the request has none or a wrong one. */
export function requireAdmission(registration: Registration, presented: string | undefined): void {
  if (registration.mode === 'closed') {
    throw new Refusal(
      'registration_closed',
      'Registration is closed on this gateway (REGISTRATION=closed). Only its operator can register a provider: ask the operator to run `tollkeeper provider create --operator`',
    )
  }
  if (registration.mode === 'open') return
  const isRight =
    presented !== undefined && timingSafeEqual(hashSecret(presented), hashSecret(registration.token))
  if (!isRight)
    throw new Refusal('unauthorized', 'Send the operator’s token in the header Registration-Token')
}

/**
 * Counts a registration, in the transaction that makes it.
 *
 * @throws {Refusal} `rate_limited` over the limit of an address or over the total limit.
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
  // The address is counted first, so that an address over its limit doesn't use up the total limit.
  await count(address, limits.address, 'registrations per hour from one address')
  await count('', limits.total, 'registrations per hour in all')
  await dropOldQuotas(tx, now)
}
