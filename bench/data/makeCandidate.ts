import { randomBytes } from 'node:crypto'
import type { Address, Hex } from 'viem'
import type { Candidate } from '#ledger/acceptance/acceptPayments'
import { firstIdAt } from '#ledger/store/identifiers'

export type Seller = { providerId: string; endpointId: string; payee: Address }

export const feeRecipient: Address = `0x${'fe'.repeat(20)}`
export const randomHex = (bytes: number): Hex => `0x${randomBytes(bytes).toString('hex')}`
/** As `newId` would make it then. */
const idAt = (prefix: 'pay' | 'req', now: number) =>
  firstIdAt(prefix, new Date(now)).slice(0, -20) + randomHex(10).slice(2)

/** What `accept_payments` is given for a payment of 0.05 USDC that passed every check. */
export function makeCandidate(
  now: number,
  seller: Seller,
  { payer, chainId, token }: { payer: Address; chainId: number; token: Address },
): Candidate {
  const signed = () => ({
    validAfter: 0n,
    validBefore: BigInt(Math.floor(now / 1000) + 93_600),
    nonce: randomHex(32),
    signature: randomHex(65),
    acceptedBlock: null,
  })
  return {
    ...{
      id: idAt('pay', now),
      source: 'gateway',
      requestId: idAt('req', now),
      ...seller,
      chainId,
      token,
      payer,
    },
    first: { stage: 'waiting' },
    ...{ payerHasCode: false, feeRecipient, splitter: null, tier: 'micropayment', effectiveRate: '0.05' },
    ...{ price: 50_000n, providerAmount: 47_500n, feeAmount: 2_500n, resource: 'https://api.example/0' },
    ...{ idempotencyKey: randomHex(18).slice(2), requestHash: randomHex(32).slice(2) },
    ...{ challengedAt: now, acceptedAt: now, limit: null },
    authorizations: [
      { ...signed(), recipient: seller.payee, value: 47_500n },
      { ...signed(), recipient: feeRecipient, value: 2_500n },
    ],
  }
}
