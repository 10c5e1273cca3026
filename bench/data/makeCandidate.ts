import type { Candidate } from '@tollkeeper/ledger/acceptance/acceptPayments'
import { firstIdAt } from '@tollkeeper/ledger/store/identifiers'
import type { Address } from 'viem'
import { seedHalf, seedPlatform, toCandidate } from '../../test/support/seedPayments.ts'
import { randomHex } from '../../test/support/usdc.ts'

export type Seller = { providerId: string; endpointId: string; payee: Address }

/** Returns an id as `newId` would have created it at that time. */
const idAt = (prefix: 'pay' | 'req', now: number) =>
  firstIdAt(prefix, new Date(now)).slice(0, -20) + randomHex(10).slice(2)

/** Returns the input of `accept_payments` for a payment of 0.05 USDC that passed every check. */
export function makeCandidate(
  now: number,
  seller: Seller,
  paid: { payer: Address; chainId: number; token: Address },
): Candidate {
  const validBefore = BigInt(Math.floor(now / 1000) + 93_600)
  return toCandidate({
    id: idAt('pay', now),
    requestId: idAt('req', now),
    ...seller,
    ...paid,
    halves: [
      seedHalf({ recipient: seller.payee, value: 47_500n, validBefore }),
      seedHalf({ recipient: seedPlatform, value: 2_500n, validBefore }),
    ],
    resource: 'https://api.example/0',
    acceptedAt: new Date(now),
    idempotencyKey: randomHex(18).slice(2),
    requestHash: randomHex(32).slice(2),
  })
}
