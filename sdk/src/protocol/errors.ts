/** The meaning of a stable code: its HTTP status, the problem's title, and whether trying again can help. */
type ErrorEntry = { status: number; title: string; retryable?: true }

/**
 * The HTTP status and title of every stable error code of the protocol, the gateway and the facilitator.
 *
 * A code never changes its meaning. The API, the keeper and the middleware respond with its status and a problem+json body (RFC 9457). 402 means that
 * a payment was presented and refused.
 *
 * @example
 * import { errorCodes } from '@tollkeeper/sdk/protocol'
 *
 * console.log(errorCodes.payment_replayed)
 * // { status: 409, title: 'Challenge or authorization was already used' }
 */
export const errorCodes = {
  // 400: malformed
  invalid_json: { status: 400, title: 'Body is not valid JSON' },
  invalid_request: { status: 400, title: 'Request is malformed' },
  invalid_payload: { status: 400, title: 'Payment payload is malformed' },
  invalid_authorization_header: { status: 400, title: 'Authorization header is malformed' },
  invalid_cursor: { status: 400, title: 'Cursor is malformed' },
  webhook_malformed: { status: 400, title: 'Webhook message is malformed' },
  // 401, 403: credentials
  unauthorized: { status: 401, title: 'API key is missing or wrong' },
  webhook_signature_invalid: { status: 401, title: 'Webhook signature does not match' },
  webhook_expired: { status: 401, title: 'Webhook message is too old, or dated in the future' },
  forbidden: { status: 403, title: 'Not allowed with these credentials' },
  payment_declined: { status: 403, title: 'Seller declined this request' },
  registration_closed: { status: 403, title: 'Registration is closed on this gateway' },
  // 402: the payment was refused
  macaroon_invalid: { status: 402, title: 'Macaroon is not valid' },
  macaroon_expired: { status: 402, title: 'Macaroon has expired' },
  caveat_mismatch: { status: 402, title: 'A caveat of the macaroon is not met' },
  unknown_caveat: { status: 402, title: 'Macaroon has an unknown caveat' },
  challenge_price_too_low: { status: 402, title: 'Challenge price is below the current price' },
  challenge_network_mismatch: { status: 402, title: 'Challenge is for a network that is not accepted here' },
  amount_too_low: { status: 402, title: 'Signed amount is below the required amount' },
  amount_too_high: { status: 402, title: 'Signed amount exceeds what can be settled' },
  amount_mismatch: { status: 402, title: 'Signed amount does not equal the price' },
  payees_mismatch: { status: 402, title: 'Payload pays a different recipient than the challenge requires' },
  payer_mismatch: { status: 402, title: 'Both payloads must come from the same payer' },
  nonce_reused: { status: 402, title: 'Both payloads have the same nonce' },
  authorization_not_yet_valid: { status: 402, title: 'Authorization is not valid yet' },
  authorization_expired: { status: 402, title: 'Authorization has expired' },
  authorization_expires_too_soon: { status: 402, title: 'Authorization expires before it can be settled' },
  authorization_cancelled: { status: 402, title: 'Authorization was cancelled on-chain' },
  invalid_signature: { status: 402, title: 'Signature does not match the payer' },
  insufficient_balance: { status: 402, title: 'Insufficient USDC balance' },
  payer_in_debt: { status: 402, title: 'Payer owes for payments that it cancelled or could not cover' },
  payer_blocked: {
    status: 402,
    title: 'Payer has a failed or repudiated payment pending',
  },
  payer_blacklisted: { status: 402, title: 'USDC has blacklisted the payer' },
  payer_limit_exceeded: { status: 402, title: 'Payer has reached its limit of unsettled payments' },
  mock_mode_off: { status: 402, title: 'Mock payments are not accepted here' },
  tab_closed: { status: 402, title: 'Tab is closed: open another one' },
  tab_behind: { status: 402, title: 'Tab state does not cover what was bought on the tab' },
  tab_mismatch: { status: 402, title: 'Tab does not match the offer' },
  tab_limit_exceeded: {
    status: 402,
    title: 'Payer has reached its tab limit until some tabs settle',
  },
  tabs_off: { status: 402, title: 'Tabs are not accepted here' },
  pass_mismatch: { status: 402, title: 'Challenge is for a different pass than is sold now' },
  pass_payer_unsupported: {
    status: 402,
    title: 'A contract wallet cannot use a pass that is bound to its payer',
  },
  pass_invalid: { status: 402, title: 'Pass is not valid here' },
  pass_proof_invalid: { status: 402, title: 'Pass needs a proof from the wallet that paid for it' },
  pass_expired: { status: 402, title: 'Pass has expired' },
  pass_ended: { status: 402, title: 'Pass has ended: its payment failed, or was refunded or voided' },
  pass_used_up: { status: 402, title: 'All requests of the pass are used' },
  // 404: unknown
  not_found: { status: 404, title: 'No such route' },
  unknown_provider: { status: 404, title: 'No such provider' },
  unknown_endpoint: { status: 404, title: 'No such endpoint' },
  unknown_wallet: { status: 404, title: 'No such wallet' },
  unknown_payment: { status: 404, title: 'No such payment' },
  unknown_payer: { status: 404, title: 'Payer has never paid this provider' },
  unknown_tab: { status: 404, title: 'No such tab' },
  unknown_pass: { status: 404, title: 'No such pass' },
  unknown_upstream: { status: 404, title: 'Provider has no upstream' },
  unknown_hook: { status: 404, title: 'Provider has no hook' },
  unknown_webhook: { status: 404, title: 'No such webhook' },
  unknown_delivery: { status: 404, title: 'No such delivery' },
  // 405 to 415
  method_not_allowed: { status: 405, title: 'Method is not allowed here' },
  request_timeout: { status: 408, title: 'Request took too long to arrive', retryable: true },
  payload_too_large: { status: 413, title: 'Body is too large' },
  uri_too_long: { status: 414, title: 'URL is too long' },
  unsupported_media_type: { status: 415, title: 'Body must be application/json' },
  // 409: conflict with what has already happened
  payment_replayed: { status: 409, title: 'Challenge or authorization was already used' },
  authorization_used: { status: 409, title: 'Authorization was already used on-chain' },
  payment_claimed: { status: 409, title: 'Payment is being settled or was published for settlement' },
  tab_too_small: { status: 409, title: 'Tab is too small to settle' },
  payment_voided: { status: 409, title: 'Payment was voided' },
  payment_not_settled: { status: 409, title: 'Payment has not settled yet' },
  payment_not_requeueable: { status: 409, title: 'Payment cannot be queued again' },
  wallet_exists: { status: 409, title: 'Wallet is registered already' },
  endpoint_exists: { status: 409, title: 'Endpoint is registered already' },
  endpoint_disabled: { status: 409, title: 'Endpoint is disabled' },
  provider_disabled: { status: 409, title: 'Provider is disabled' },
  wallet_in_use: { status: 409, title: 'Wallet is used by an endpoint' },
  wallet_retired: { status: 409, title: 'Wallet is retired' },
  last_api_key: { status: 409, title: 'This is the last usable API key' },
  // 412, and 428 below: a client must name the version that it changes
  precondition_failed: { status: 412, title: 'Resource has changed since the version in If-Match' },
  // 422: well-formed, but violates a rule
  invalid_field: { status: 422, title: 'A field has an invalid value' },
  invalid_date_range: { status: 422, title: 'Date range ends before it starts' },
  endpoint_ambiguous: { status: 422, title: 'Several hosts have an endpoint for this path' },
  unknown_network: { status: 422, title: 'No such network' },
  network_not_served: { status: 422, title: 'Network is not served here' },
  network_not_accepted: { status: 422, title: 'Endpoint does not accept this network' },
  networks_mixed: { status: 422, title: 'Test and production networks cannot be mixed' },
  price_below_minimum: { status: 422, title: 'Price is below the minimum' },
  price_below_registered: { status: 422, title: 'Price is below the registered one' },
  payee_refused: { status: 422, title: 'This address cannot be paid' },
  webhook_url_refused: { status: 422, title: 'This URL cannot receive webhooks' },
  hook_url_refused: { status: 422, title: 'This URL cannot be a hook' },
  upstream_url_refused: { status: 422, title: 'This URL cannot be an upstream' },
  webhook_limit_reached: { status: 422, title: 'Webhook limit reached' },
  endpoint_limit_reached: { status: 422, title: 'Endpoint limit reached' },
  refund_refused: { status: 422, title: 'This payment cannot be refunded here' },
  gas_not_covered: { status: 422, title: 'Neither a fee nor the daily allowance covers the gas' },
  refund_nonce_mismatch: { status: 422, title: 'Nonce does not match any refund of this payment' },
  refund_exceeds_payment: { status: 422, title: 'Refunds would exceed the payment' },
  settlement_failed: { status: 422, title: 'Settlement failed' },
  // 428, 429, 5xx
  precondition_required: { status: 428, title: 'If-Match header with the current version is missing' },
  rate_limited: { status: 429, title: 'Too many requests', retryable: true },
  internal_error: { status: 500, title: 'Internal error', retryable: true },
  upgrade_not_supported: { status: 501, title: 'WebSockets are not supported' },
  invalid_challenge: { status: 502, title: 'Challenge is malformed' },
  invalid_receipt: { status: 502, title: 'Receipt is not valid' },
  upstream_failed: { status: 502, title: 'Upstream sent no usable response', retryable: true },
  upstream_busy: {
    status: 503,
    title: 'Upstream has reached its limit of concurrent requests',
    retryable: true,
  },
  upstream_timeout: { status: 504, title: 'Upstream did not answer in time', retryable: true },
  decision_unavailable: {
    status: 503,
    title: 'Seller could not decide whether to accept this request',
    retryable: true,
  },
  dependency_unavailable: { status: 503, title: 'A dependency is unavailable', retryable: true },
  overloaded: { status: 503, title: 'Too many payments are waiting to be accepted', retryable: true },
  settlement_pending: { status: 503, title: 'Settlement is not mined yet', retryable: true },
  sales_stopped: { status: 503, title: 'The operator has stopped sales', retryable: true },
  token_paused: { status: 503, title: 'USDC is paused', retryable: true },
  insufficient_gas_funds: { status: 503, title: 'Insufficient ETH for gas', retryable: true },
  provider_limit_exceeded: {
    status: 503,
    title: 'Provider has reached its limit of unsettled payments',
    retryable: true,
  },
} as const satisfies Record<string, ErrorEntry>

/** A stable error code: a key of {@link errorCodes}. */
export type ErrorCode = keyof typeof errorCodes

/** The optional parts of an error. */
export type ErrorOptions = {
  /** Facts for the caller, such as the expected and the received value. They become part of the response, so never include a secret. */
  details?: Record<string, unknown>
  cause?: unknown
}

/**
 * Base class of every error that this package throws. Its `code` is stable, and its message is for people. The only exception: an invalid argument or
 * option causes a plain `TypeError`.
 *
 * @example
 * import { type Client, TollkeeperError } from '@tollkeeper/sdk'
 *
 * // Returns the data, or the code of the error.
 * export async function readOr(client: Client, path: string) {
 *   return client.request(path).then(
 *     ({ data }) => data,
 *     (error: unknown) => {
 *       if (error instanceof TollkeeperError) return error.code
 *       throw error
 *     },
 *   )
 * }
 */
export class TollkeeperError<Code extends string = string> extends Error {
  override readonly name: string = 'TollkeeperError'
  readonly code: Code

  constructor(code: Code, message: string, { cause }: { cause?: unknown } = {}) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
  }
}

/**
 * An error with a stable `code`, the HTTP `status` that goes with it, and `details` for the caller.
 *
 * `retryable` is true if the same request can succeed later.
 *
 * @example
 * import { BaseError } from '@tollkeeper/sdk/protocol'
 *
 * const error = new BaseError('rate_limited')
 * console.log(error.status, error.retryable, error.message)
 * // 429 true Too many requests
 */
export class BaseError extends TollkeeperError<ErrorCode> {
  override readonly name: string = 'BaseError'
  readonly retryable: boolean
  readonly details: Record<string, unknown>

  constructor(code: ErrorCode, message?: string, options: ErrorOptions = {}) {
    const entry: ErrorEntry = errorCodes[code]
    super(code, message ?? entry.title, options)
    this.retryable = entry.retryable ?? false
    this.details = options.details ?? {}
  }

  /** The HTTP status that goes with the code. */
  get status(): number {
    return errorCodes[this.code].status
  }
}

/**
 * Thrown if received data violates the protocol.
 *
 * @example
 * import { ProtocolError } from '@tollkeeper/sdk'
 * import { parseUsdc } from '@tollkeeper/sdk/protocol'
 *
 * export function priceOf(text: string): bigint | undefined {
 *   try {
 *     return parseUsdc(text)
 *   } catch (error) {
 *     if (error instanceof ProtocolError && error.code === 'invalid_field') return undefined
 *     throw error
 *   }
 * }
 */
export class ProtocolError extends BaseError {
  override readonly name = 'ProtocolError'
}

/**
 * Returns whether a received value is an error code that this version knows.
 *
 * @example
 * import { isErrorCode } from '@tollkeeper/sdk/protocol'
 *
 * console.log(isErrorCode('rate_limited'), isErrorCode('no_such_code'))
 * // true false
 */
export function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === 'string' && Object.hasOwn(errorCodes, code)
}
