import { BaseError, type ErrorCode } from '#protocol/errors'
import { findReason, reasonOf as nameReason } from '#protocol/x402'

/** A verdict against a payment, in the standard's words (specs/x402-specification-v2.md section 9). */
export class InvalidPayment extends Error {
  override name = 'InvalidPayment'
  /** null: the standard has no word for it, and each route gives its own. */
  readonly reason: string | null

  constructor(reason: string | null, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.reason = reason
  }
}

export const duplicateSettlement = 'duplicate_settlement'

/** Codes for which the standard uses another one's word, since the token doesn't say who is blacklisted. */
const ours: Record<string, ErrorCode> = {
  account_blacklisted: 'payer_blacklisted',
  payee_refused: 'payer_blacklisted',
  // Only the door says so, of a payer with code.
  unauthorized: 'invalid_signature',
}

/** @param code of a refusal or of a failed settlement. */
export function reasonOf(code: string | null): string | null {
  if (code === null) return null
  return findReason(ours[code] ?? code) ?? null
}

export const wrongRecipient = nameReason('payees_mismatch', 2)

/** v1 has a shorter name for it. */
export function wrongValue(version: 1 | 2): string {
  return nameReason('amount_mismatch', version)
}

/** The verdict against the payment that an error means; null: the error says nothing about the payment. */
export function toInvalidPayment(error: unknown): InvalidPayment | null {
  if (error instanceof InvalidPayment) return error
  if (!(error instanceof BaseError)) return null
  const reason = reasonOf(error.code)
  if (error.code === 'gas_not_covered') return new InvalidPayment(null, error.message, { cause: error })
  return reason === null ? null : new InvalidPayment(reason, error.message, { cause: error })
}
