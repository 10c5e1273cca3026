import { BaseError, type ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { findReason, reasonOf as nameReason } from '@tollkeeper/sdk/protocol/x402'
import type { Hex } from 'viem'

type RefusalOptions = {
  /** 200: a verdict against the payment, as the standard's middlewares want it. Default. */
  status?: 200 | 400 | 409
  /** By which it was settled, or may be. Default '': none is out. */
  transaction?: Hex | ''
  cause?: unknown
}

/** Why a request isn't answered with yes. */
export class Refused extends Error {
  override name = 'Refused'
  /** The standard's word for it (specs/x402-specification-v2.md section 9); null: it has none, and each route its own. */
  readonly reason: string | null
  readonly status: NonNullable<RefusalOptions['status']>
  readonly transaction: Hex | ''

  constructor(
    reason: string | null,
    message: string,
    { status = 200, transaction = '', ...options }: RefusalOptions = {},
  ) {
    super(message, options)
    this.reason = reason
    this.status = status
    this.transaction = transaction
  }
}

/** The body isn't in the standard's form. */
export function malformed(message: string, cause?: unknown): Refused {
  return new Refused('invalid_payload', message, { status: 400, cause })
}

/** A version, scheme or network that /supported doesn't name. A verdict: a server error would have the seller ask again. */
export function notServed(
  reason: 'invalid_x402_version' | 'invalid_scheme' | 'invalid_network',
  message: string,
): Refused {
  return new Refused(reason, message)
}

/** The same payment came before: only one caller is told yes. */
export function duplicate(message: string, transaction: Hex | '' = ''): Refused {
  return new Refused('duplicate_settlement', message, { transaction })
}

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

/** What an error says against the request. Throws it where that is nothing. */
export function toRefused(error: unknown): Refused {
  if (error instanceof Refused) return error
  const reason = error instanceof BaseError ? reasonOf(error.code) : null
  if (error instanceof BaseError && (reason !== null || error.code === 'gas_not_covered'))
    return new Refused(reason, error.message, { cause: error })
  throw error
}
