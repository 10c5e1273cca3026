import { BaseError, type ErrorCode } from '#protocol/errors'
import { findReason, reasonOf as nameReason } from '#protocol/x402'

/** A verdict against a payment, by the standard's word for it (specs/x402-specification-v2.md section 9). */
export class InvalidPayment extends Error {
  override name = 'InvalidPayment'
  /** null: no word of the standard says it; each route then has its own. */
  readonly reason: string | null

  constructor(reason: string | null, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.reason = reason
  }
}

export const duplicateSettlement = 'duplicate_settlement'

/** Codes for which the standard has the word of another one: the token doesn't say who is blacklisted. */
const ours: Record<string, ErrorCode> = {
  account_blacklisted: 'payer_blacklisted',
  payee_refused: 'payer_blacklisted',
  // Only the door says so, of a payer with code.
  unauthorized: 'invalid_signature',
}

/** @param code of a refusal, or of what a settlement failed with. */
export function reasonOf(code: string | null): string | null {
  if (code === null) return null
  return findReason(ours[code] ?? code) ?? null
}

export const wrongRecipient = nameReason('payees_mismatch', 2)

/** v1 calls it by a shorter name. */
export function wrongValue(version: 1 | 2): string {
  return nameReason('amount_mismatch', version)
}

/** The verdict that an error is against the payment; null: the error says nothing about it. */
export function toInvalidPayment(error: unknown): InvalidPayment | null {
  if (error instanceof InvalidPayment) return error
  if (!(error instanceof BaseError)) return null
  const reason = reasonOf(error.code)
  if (error.code === 'gas_not_covered') return new InvalidPayment(null, error.message, { cause: error })
  return reason === null ? null : new InvalidPayment(reason, error.message, { cause: error })
}
