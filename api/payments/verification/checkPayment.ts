import { keccak256 } from '@tollkeeper/chain/keccak256'
import type { Presented } from '@tollkeeper/ledger/acceptance/door'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { boundNonce, feeNonce } from '@tollkeeper/sdk/protocol/challenge'
import type { MacaroonTerms } from '@tollkeeper/sdk/protocol/macaroon'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { isoSeconds } from '@tollkeeper/sdk/protocol/time'
import type { Address } from 'viem'
import { Refusal } from '../../http/refusal.ts'

/** The terms that a payment is checked against. The payer chooses none of them. */
export type PaymentTerms = Omit<MacaroonTerms, 'version' | 'kid'>

/**
 * Minimum remaining validity of an authorization in seconds, which is enough for the keeper with any trigger settings. Some clients sign
 * for five minutes; the difference is for the transmission of their request.
 */
const minimumValiditySeconds = 270

/**
 * Checks a payment against its terms, using only what is in the request: it reads neither the database nor the chain. It doesn't check the
 * signatures.
 *
 * @param splitter the recipient of one authorization for both parts; null: each part has a separate authorization.
 * @param now Unix seconds.
 * @throws {Refusal} for the first broken rule.
 */
export function checkPayment(
  [first, second]: Presented,
  { payTo, feePayTo, amount, feeAmount }: PaymentTerms,
  splitter: Address | null,
  now: number,
): void {
  checkPayee('payloads[0]', splitter ?? payTo, first)
  if (second) {
    checkPayee('payloads[1]', feePayTo, second)
    if (first.from !== second.from) {
      throw new Refusal('payer_mismatch', undefined, { details: { payers: [first.from, second.from] } })
    }
    if (first.nonce === second.nonce) throw new Refusal('nonce_reused')
    checkAmount('payloads[0]', first.value, amount)
    checkAmount('payloads[1]', second.value, feeAmount)
  } else checkExactAmount(first.value, amount + feeAmount)
  checkWindow('payloads[0]', first, now)
  if (second) checkWindow('payloads[1]', second, now)
}

function checkPayee(payload: string, expected: Address, { to: got }: SignedAuthorization): void {
  if (got === expected) return
  throw new Refusal('payees_mismatch', `${payload} must pay ${expected}, got ${got}`, {
    details: { payload, expected, got },
  })
}

function checkAmount(payload: string, value: bigint, required: bigint): void {
  if (value >= required) return
  throw new Refusal(
    'amount_too_low',
    `${payload} must pay at least ${formatUsdc(required)} USDC, got ${formatUsdc(value)}`,
    { details: { payload, required: required.toString(), got: value.toString() } },
  )
}

/** Requires the exact price: a splitter divides by the price's shares, so part of any other amount would remain in it. */
function checkExactAmount(value: bigint, price: bigint): void {
  if (value === price) return
  throw new Refusal(
    'amount_mismatch',
    `payloads[0] must pay exactly ${formatUsdc(price)} USDC, got ${formatUsdc(value)}`,
    { details: { payload: 'payloads[0]', required: price.toString(), got: value.toString() } },
  )
}

/** @throws {Refusal} for an authorization that isn't valid now, or not for long enough. */
export function checkWindow(
  payload: string,
  { validAfter, validBefore }: SignedAuthorization,
  now: number,
): void {
  const details = { payload, validAfter: Number(validAfter), validBefore: Number(validBefore), now }
  // USDC requires `now > validAfter`. Here `validAfter` may equal `now`, because the block that settles the payment comes later.
  const clock = `the gateway's clock says ${isoSeconds(now)}`
  if (validAfter > now) {
    const why = `${payload} is valid only after ${isoSeconds(validAfter)}, and ${clock}. Is the payer's clock ahead?`
    throw new Refusal('authorization_not_yet_valid', why, { details })
  }
  const ended = `${isoSeconds(validBefore)}, and ${clock}. Is the payer's clock behind?`
  if (validBefore <= now)
    throw new Refusal('authorization_expired', `${payload} was valid until ${ended}`, { details })
  if (validBefore < now + minimumValiditySeconds) {
    const why = `${payload} must be valid for another ${minimumValiditySeconds} seconds, but expires at ${ended}`
    throw new Refusal('authorization_expires_too_soon', why, { details })
  }
}

/**
 * Returns which of the nonces are bound to the challenge. A bound nonce can't belong to another payment; for the others, the chain must
 * confirm that they are unused.
 *
 * @returns one claim per authorization, in order.
 */
export function boundNonces([first, second]: Presented, issuer: string, requestId: string): boolean[] {
  const isFirstBound = first.nonce === boundNonce(issuer, requestId, keccak256)
  if (!second) return [isFirstBound]
  return [isFirstBound, isFirstBound && second.nonce === feeNonce(first.nonce, keccak256)]
}
