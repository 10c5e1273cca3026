import { BaseError } from '#protocol/errors'

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

const payloadReason = (field: string) => `invalid_exact_evm_payload_${field}`

/** The standard's words for our codes: of refusals here, and of what settlements fail with. */
const reasons: Partial<Record<string, string>> = {
  invalid_signature: payloadReason('signature'),
  authorization_expired: payloadReason('authorization_valid_before'),
  authorization_not_yet_valid: payloadReason('authorization_valid_after'),
  insufficient_balance: 'insufficient_funds',
  authorization_used: 'invalid_transaction_state',
  authorization_cancelled: 'invalid_transaction_state',
  account_blacklisted: 'invalid_transaction_state',
  payer_blacklisted: 'invalid_transaction_state',
  payer_quarantined: 'invalid_transaction_state',
  token_paused: 'invalid_transaction_state',
}

export function reasonOf(code: string | null): string | null {
  return (code && reasons[code]) ?? null
}

export const wrongRecipient = payloadReason('recipient_mismatch')

/** v1 calls it by a shorter name. */
export function wrongValue(version: 1 | 2): string {
  return payloadReason(version === 1 ? 'authorization_value' : 'authorization_value_mismatch')
}

/** What says no to a payment as a verdict; anything else that was thrown says nothing about it. */
export function toInvalidPayment(error: unknown): InvalidPayment | null {
  if (error instanceof InvalidPayment) return error
  if (!(error instanceof BaseError)) return null
  const reason = reasonOf(error.code)
  return reason === null ? null : new InvalidPayment(reason, error.message, { cause: error })
}
