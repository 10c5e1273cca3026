import type { Address } from 'viem'
import { keccak256 } from '#chain/keccak256'
import { formatUsdc } from '#protocol/amount'
import { boundNonce, feeNonce } from '#protocol/challenge'
import type { MacaroonTerms } from '#protocol/macaroon'
import type { SignedAuthorization } from '#protocol/payload'
import { Refusal } from '../refusal.ts'

/** What must be left of an authorization for its settlement, seconds. */
const minimumValiditySeconds = 1_800

export type Presented = { provider: SignedAuthorization; fee: SignedAuthorization }

/**
 * Holds two authorizations against the terms of their challenge. Signatures aside, everything that needs nothing but
 * the request.
 *
 * @param now Unix seconds.
 * @throws {Refusal} the first rule that is broken.
 */
export function checkPayment({ provider, fee }: Presented, terms: MacaroonTerms, now: number): void {
  if (provider.to !== terms.payTo) throw wrongPayee('payloads[0]', terms.payTo, provider.to)
  if (fee.to !== terms.feePayTo) throw wrongPayee('payloads[1]', terms.feePayTo, fee.to)
  if (provider.from !== fee.from) {
    throw new Refusal('payer_mismatch', undefined, { details: { payers: [provider.from, fee.from] } })
  }
  if (provider.nonce === fee.nonce) throw new Refusal('nonce_reused')
  checkAmount('payloads[0]', provider.value, terms.amount)
  checkAmount('payloads[1]', fee.value, terms.feeAmount)
  checkWindow('payloads[0]', provider, now)
  checkWindow('payloads[1]', fee, now)
}

function wrongPayee(payload: string, expected: Address, got: Address): Refusal {
  return new Refusal('payees_mismatch', `${payload} must pay ${expected}, got ${got}`, {
    details: { payload, expected, got },
  })
}

function checkAmount(payload: string, value: bigint, required: bigint): void {
  if (value >= required) return
  throw new Refusal(
    'amount_too_low',
    `${payload} must carry at least ${formatUsdc(required)} USDC, got ${formatUsdc(value)}`,
    { details: { payload, required: required.toString(), got: value.toString() } },
  )
}

function checkWindow(payload: string, { validAfter, validBefore }: SignedAuthorization, now: number): void {
  const details = { payload, validAfter: Number(validAfter), validBefore: Number(validBefore), now }
  // USDC wants `now > validAfter`; the block that settles it comes later than this second.
  if (validAfter > now) throw new Refusal('authorization_not_yet_valid', undefined, { details })
  if (validBefore <= now) throw new Refusal('authorization_expired', undefined, { details })
  if (validBefore < now + minimumValiditySeconds) {
    throw new Refusal(
      'authorization_expires_too_soon',
      `${payload} must be valid for another ${minimumValiditySeconds} seconds`,
      { details },
    )
  }
}

/**
 * Which of the two nonces are bound to the challenge. A bound one can't stand for any other payment; of another, the
 * chain must say that it is unused.
 */
export function boundNonces(
  { provider, fee }: Presented,
  issuer: string,
  requestId: string,
): [provider: boolean, fee: boolean] {
  const isProviderBound = provider.nonce === boundNonce(issuer, requestId, keccak256)
  return [isProviderBound, isProviderBound && fee.nonce === feeNonce(provider.nonce, keccak256)]
}
