import { timingSafeEqual } from 'node:crypto'
import { hashSecret } from '#ledger/apiKeys'
import type { Transaction } from '#ledger/database'
import { Refusal } from '../refusal.ts'
import type { Registration } from '../settings.ts'

const hourMs = 3_600_000

/** @throws {Refusal} `registration_closed`; `unauthorized` without the token that it takes. */
export function requireAdmission(registration: Registration, presented: string | undefined): void {
  if (registration.mode === 'closed') throw new Refusal('registration_closed')
  if (registration.mode === 'open') return
  const isRight =
    presented !== undefined && timingSafeEqual(hashSecret(presented), hashSecret(registration.token))
  if (!isRight) throw new Refusal('unauthorized', 'Registration needs the operator’s Registration-Token')
}

/**
 * Counts a registration in the transaction that makes it: one that fails isn't counted, and no process lets one through
 * that another has counted already.
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
  const start = Math.floor(now / hourMs) * hourMs
  const retryAfter = Math.ceil((start + hourMs - now) / 1000)
  const count = async (counted: string, limit: number) => {
    const [row] = await tx<[{ count: number }]>`
      insert into registration_count as c (hour, address, count) values (${new Date(start)}, ${counted}, 1)
      on conflict (hour, address) do update set count = c.count + 1
      returning count`
    if (row.count <= limit) return
    const whose = counted === '' ? 'in all' : 'from one address'
    throw new Refusal('rate_limited', `At most ${limit} registrations an hour ${whose}`, {
      details: { retryAfter },
    })
  }
  // The address first: one that is over its own limit uses up nobody else's.
  await count(address, limits.address)
  await count('', limits.total)
  await tx`delete from registration_count where hour < ${new Date(start)}`
}
