import { BaseError, type ErrorCode } from '@tollkeeper/sdk/protocol/errors'
import { findReason, reasonOf as nameReason } from '@tollkeeper/sdk/protocol/x402'
import type { Hex } from 'viem'

type RefusalOptions = {
  /** Default 200: the standard's middlewares expect every verdict with this status. */
  status?: 200 | 400 | 409
  /** The transaction that settled the payment, or may settle it. Default '', if there is none. */
  transaction?: Hex | ''
  cause?: unknown
}

/** The reason why the facilitator refuses a request. */
export class Refused extends Error {
  override name = 'Refused'
  /**
   * The standard's code for the refusal (specs/x402-specification-v2.md section 9), or null if the standard has none. Then the route uses its
   * default code.
   */
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

/** Returns the refusal of a body that isn't in the standard's format. */
export function malformed(message: string, cause?: unknown): Refused {
  return new Refused('invalid_payload', message, { status: 400, cause })
}

/**
 * Returns the refusal of a version, scheme or network that /supported doesn't list. The refusal is a verdict with status 200: a server error
 * would make the seller retry.
 */
export function notServed(
  reason: 'invalid_x402_version' | 'invalid_scheme' | 'invalid_network',
  message: string,
): Refused {
  return new Refused(reason, message)
}

/**
 * Returns the refusal of a payment that was presented before. Only one caller may receive a success, because each seller that receives a
 * success serves its resource.
 */
export function duplicate(message: string, transaction: Hex | '' = ''): Refused {
  return new Refused('duplicate_settlement', message, { transaction })
}

/**
 * Our codes that have no reason in the standard, each with the code whose reason is used instead. Blacklisted payers and refused payees get
 * the reason for blacklisted payers, because the token doesn't report which of the two accounts is blacklisted.
 */
const ours: Record<string, ErrorCode> = {
  account_blacklisted: 'payer_blacklisted',
  payee_refused: 'payer_blacklisted',
  // The facilitator uses `unauthorized` in only one case: the payer has code, and the caller sent no API key.
  unauthorized: 'invalid_signature',
}

/** Returns the standard's reason for the code of a refusal or of a failed settlement, or null if it has none. */
export function reasonOf(code: string | null): string | null {
  if (code === null) return null
  return findReason(ours[code] ?? code) ?? null
}

export const wrongRecipient = nameReason('payees_mismatch', 2)

/** Returns the reason for a wrong amount, for which version 1 has a shorter name. */
export function wrongValue(version: 1 | 2): string {
  return nameReason('amount_mismatch', version)
}

/** Codes of refusals for which the standard has no reason. */
const withoutReason: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['gas_not_covered', 'payment_declined'])

/** Converts an error to the facilitator's refusal. If the error isn't about the request, throws it again. */
export function toRefused(error: unknown): Refused {
  if (error instanceof Refused) return error
  const reason = error instanceof BaseError ? reasonOf(error.code) : null
  if (error instanceof BaseError && (reason !== null || withoutReason.has(error.code)))
    return new Refused(reason, error.message, { cause: error })
  throw error
}
