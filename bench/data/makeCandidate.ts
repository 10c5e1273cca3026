import type { Address } from 'viem'
import { acceptPayments, type Candidate } from '#ledger/acceptance/acceptPayments'
import type { Database } from '#ledger/store/database'
import { firstIdAt } from '#ledger/store/identifiers'
import { seedPlatform, toCandidate } from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'

export type Seller = { providerId: string; endpointId: string; payee: Address }

/** As `newId` would make it then. */
const idAt = (prefix: 'pay' | 'req', now: number) =>
  firstIdAt(prefix, new Date(now)).slice(0, -20) + randomHex(10).slice(2)

/** What `accept_payments` is given for a payment of 0.05 USDC that passed every check. */
export function makeCandidate(
  now: number,
  seller: Seller,
  paid: { payer: Address; chainId: number; token: Address },
): Candidate {
  const window = { validAfter: 0n, validBefore: BigInt(Math.floor(now / 1000) + 93_600), acceptedBlock: null }
  const sign = (recipient: Address, value: bigint) => ({
    ...{ recipient, value, ...window, nonce: randomHex(32), signature: randomHex(65) },
  })
  return {
    ...toCandidate({
      id: idAt('pay', now),
      requestId: idAt('req', now),
      ...seller,
      ...paid,
      halves: [sign(seller.payee, 47_500n), sign(seedPlatform, 2_500n)],
      resource: 'https://api.example/0',
      acceptedAt: new Date(now),
    }),
    ...{ idempotencyKey: randomHex(18).slice(2), requestHash: randomHex(32).slice(2) },
  }
}

/** Stores payments as production does. */
export async function acceptAll(sql: Database, candidates: Candidate[]): Promise<void> {
  const verdicts = await acceptPayments(sql, candidates)
  if (verdicts.some((verdict) => verdict !== 'accepted')) throw new Error(`refused: ${verdicts.join()}`)
}
