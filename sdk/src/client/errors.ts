import { type ErrorCode, isErrorCode, TollkeeperError } from '../protocol/errors.ts'
import { parsePayload } from '../protocol/payload.ts'
import { isoTime } from '../protocol/time.ts'
import type { SellerReport, SignedExactPayment, SignedPayment, SignedTabPayment } from './signedPayment.ts'

/**
 * A stable code of a {@link ClientError}: an {@link ErrorCode} of the gateway, the provider or the protocol, or one of the client's own codes.
 */
export type ClientErrorCode =
  | ErrorCode
  | 'timeout'
  | 'aborted'
  | 'network_error'
  | ChallengeRefusal
  | 'payment_refused'
  | 'http_error'
  | 'response_too_large'

/** Why the client did not pay a challenge. */
export type ChallengeRefusal =
  | 'challenge_refused'
  | 'host_not_allowed'
  | 'spending_limit_exceeded'
  | 'spending_store_failed'
  | 'tab_store_failed'
  | 'payment_store_failed'
  | 'payment_declined'
  | 'wallet_on_another_chain'
  | 'smart_account_not_deployed'
  | 'signature_not_supported'
  | 'signed_by_another_key'
  | 'signing_failed'
  | 'body_not_replayable'

/**
 * What a failed request means for the payer.
 *
 * - `served`: the request is charged, and this error is the response to it, for example a 404.
 * - `not_charged`: no signature was sent, or the gateway doesn't charge the payment. The request can be paid again.
 * - `unknown`: a signature was sent, and the payment can be charged until `settlesUntil`. `advice` explains what to do.
 */
export type PaymentOutcome = 'served' | 'not_charged' | 'unknown'

/** Options of a client error besides its code and message. */
export type ClientErrorOptions = {
  /** Default: `unknown` if `payment` is set, otherwise `not_charged`. */
  outcome?: PaymentOutcome | undefined
  /** Whether the gateway reports that it has accepted the payment. */
  isAccepted?: boolean | undefined
  cause?: unknown
  /** HTTP status of the response, if there was one. */
  status?: number
  /** Parsed body of the response, if there was one. */
  body?: unknown
  /** The payment that was signed and sent before the error. Pass it to `request` again instead of paying twice. */
  payment?: SignedPayment
  paymentId?: string
  sellerReport?: SellerReport | undefined
}

/**
 * Base class of all errors of requests. It has the payment that was signed for the request, and the outcome for the payer.
 *
 * @example
 * import { type Client, ClientError } from '@tollkeeper/sdk'
 *
 * // Repeats a request whose response was lost after payment. The buyer can't be charged twice.
 * export async function requestSafely(client: Client, path: string) {
 *   return client.request(path).catch((error: unknown) => {
 *     if (error instanceof ClientError && error.payment) return client.request(path, { payment: error.payment })
 *     throw error
 *   })
 * }
 */
export class ClientError extends TollkeeperError<ClientErrorCode> {
  override readonly name: string = 'ClientError'
  readonly status: number | undefined
  readonly body: unknown
  /**
   * The payment that was signed and sent before the error, if any. It may have been charged. To repeat the request without
   * being charged twice, call `request(path, { ...options, payment: error.payment })`.
   */
  readonly payment: SignedPayment | undefined
  readonly paymentId: string | undefined
  readonly outcome: PaymentOutcome
  /** Whether the gateway reports that it has accepted the payment. Undefined if the client didn't ask, or got no response. */
  readonly isAccepted: boolean | undefined
  /** The seller's report on the payment, for example why the seller refused it. Set only if the seller doesn't use Tollkeeper. */
  readonly sellerReport: SellerReport | undefined

  constructor(code: ClientErrorCode, message: string, options: ClientErrorOptions = {}) {
    super(code, message, options)
    this.status = options.status
    this.body = options.body
    this.payment = options.payment
    this.paymentId = options.paymentId
    this.isAccepted = options.isAccepted
    this.sellerReport = options.sellerReport
    this.outcome = options.outcome ?? (options.payment ? 'unknown' : 'not_charged')
  }

  /** Time in Unix seconds until which the signed payment can settle. Undefined if nothing was signed. */
  get settlesUntil(): number | undefined {
    return this.payment && settlesUntil(this.payment)
  }

  /** Explains what to do if the outcome is `unknown`. */
  get advice(): string | undefined {
    if (this.outcome !== 'unknown' || !this.payment) return undefined
    return adviceFor(this.payment, this)
  }
}

/** Returns the time in Unix seconds until which a signed payment can settle. */
export function settlesUntil(payment: SignedPayment): number {
  if (payment.tab) return payment.tab.expiry
  return Math.max(...payment.payloads.map((payload) => Number(parsePayload(payload).validBefore)))
}

/** Returns the path at which a gateway serves the state of a payment. */
export function pathOfPayment({
  tab,
  payloads,
}: Pick<SignedExactPayment, 'tab' | 'payloads'> | Pick<SignedTabPayment, 'tab' | 'payloads'>): string {
  if (tab) return `tabs/${tab.tab}/requests/${tab.sequence}`
  const { from, nonce } = parsePayload(payloads[0])
  return `authorizations/${from}/${nonce}`
}

function adviceFor(
  payment: SignedPayment,
  { status, isAccepted }: Pick<ClientError, 'status' | 'isAccepted'>,
): string {
  const until = isoTime(settlesUntil(payment))
  // After a seller's final response, the client forgets the payment, so repeating the request would sign another payment.
  const isOpen =
    payment.header ||
    status === undefined ||
    status >= 500 ||
    [408, 425, 429].includes(status) ||
    (status === 402 && isAccepted !== false)
  return (
    `${isAccepted ? 'The gateway has accepted this payment' : `The payment may be charged until ${until}`}. ` +
    (isOpen
      ? 'Repeat the same request: the same payment is presented again, and can’t be charged twice. '
      : 'The seller says that it no longer accepts this payment. If you repeat the request, you pay again. ') +
    // A payment with a `header` is for a seller that doesn't use Tollkeeper, so no gateway can report on it.
    (payment.header
      ? ''
      : `GET /${pathOfPayment(payment)} of the gateway returns the payment's status${payment.tab ? ", with the state's signature in the header Tab-Signature. " : '; '}`) +
    (payment.tab ? '' : 'To cancel an unused authorization, call cancelAuthorization of USDC.')
  ).trimEnd()
}

/**
 * Thrown if no response arrived within the timeout (`timeout`).
 *
 * @example
 * import { type Client, RequestTimeoutError } from '@tollkeeper/sdk'
 *
 * // Returns undefined if the payment isn't settled within a minute.
 * export async function settledSoon(client: Client, paymentId: string) {
 *   return client.waitForSettlement(paymentId, { timeoutMs: 60_000 }).catch((error: unknown) => {
 *     if (error instanceof RequestTimeoutError) return undefined
 *     throw error
 *   })
 * }
 */
export class RequestTimeoutError extends ClientError {
  override readonly name = 'RequestTimeoutError'

  constructor(timeoutMs: number, options?: ClientErrorOptions) {
    super('timeout', `Request timeout: no response within ${timeoutMs} ms`, options)
  }
}

/**
 * Thrown if the caller's `signal` fired after the payment was sent (`aborted`). Before that, the client throws the signal's own reason.
 *
 * @example
 * import { RequestAbortedError } from '@tollkeeper/sdk'
 *
 * // Returns the payment that an aborted request has sent, to present it again.
 * export const paymentOf = (error: unknown) =>
 *   error instanceof RequestAbortedError ? error.payment : undefined
 */
export class RequestAbortedError extends ClientError {
  override readonly name = 'RequestAbortedError'

  constructor(options: ClientErrorOptions) {
    super('aborted', 'Request aborted by the caller after the payment was sent', options)
  }
}

/**
 * Thrown if the connection failed (`network_error`).
 *
 * @example
 * import { NetworkError } from '@tollkeeper/sdk'
 *
 * export const isOffline = (error: unknown) => error instanceof NetworkError
 */
export class NetworkError extends ClientError {
  override readonly name = 'NetworkError'

  constructor(url: string, options?: ClientErrorOptions) {
    super(
      'network_error',
      `Request failed: network error at ${sellerOf(url)}: ${reasonOf(options?.cause)}`,
      options,
    )
  }
}

/**
 * Thrown for a challenge that this client does not pay. No signature was sent, so nothing can be charged. `code` gives the reason:
 *
 * - `challenge_refused`: the client can't read the challenge, or the challenge is for another origin, network, token or gateway than the client's.
 * - `host_not_allowed`: the seller is not among `limits.hosts`.
 * - `spending_limit_exceeded`: the price exceeds `limits.perPayment`, the request's own `maxUsdc`, or the remainder of the daily limits.
 * - `spending_store_failed`: the store of the daily sums failed; `cause` has the error.
 * - `tab_store_failed`: the store of open tabs failed; `cause` has the error.
 * - `payment_store_failed`: the store of payments whose outcome is unknown failed; `cause` has the error.
 * - `payment_declined`: `limits.onPayment` or the wallet's owner refused the payment.
 * - `wallet_on_another_chain`: the wallet signs only for the chain that it is connected to.
 * - `smart_account_not_deployed`: the payer's contract isn't on the chain yet, so USDC can't verify its signature (ERC-1271).
 * - `signature_not_supported`: a payment can't contain a signature of this length.
 * - `signed_by_another_key`: the payer's signature is not from the payer's own key.
 * - `signing_failed`: the payer could not sign; `cause` has the error.
 * - `body_not_replayable`: the request's body is a stream, which can't be sent again with the payment.
 *
 * @example
 * import { ChallengeRefusedError } from '@tollkeeper/sdk'
 *
 * export const isOverBudget = (error: unknown) =>
 *   error instanceof ChallengeRefusedError && error.code === 'spending_limit_exceeded'
 */
export class ChallengeRefusedError extends ClientError {
  override readonly name = 'ChallengeRefusedError'

  constructor(reason: string, options: ClientErrorOptions & { code?: ChallengeRefusal } = {}) {
    const { code = 'challenge_refused', ...rest } = options
    super(code, `Payment verification failed (402) before anything was paid: ${reason}`, {
      status: 402,
      ...rest,
    })
  }
}

/**
 * Thrown if the payer's USDC doesn't cover this payment in addition to the payer's unsettled payments (`insufficient_balance`).
 *
 * @example
 * import { InsufficientBalanceError } from '@tollkeeper/sdk'
 *
 * export const needsFunding = (error: unknown) => error instanceof InsufficientBalanceError
 */
export class InsufficientBalanceError extends ClientError {
  override readonly name = 'InsufficientBalanceError'

  constructor(detail: string, options?: ClientErrorOptions) {
    super('insufficient_balance', `Insufficient USDC balance (402): ${detail}`, { status: 402, ...options })
  }
}

/**
 * Thrown if the facilitator's wallet can't pay for the settlement's gas (`insufficient_gas_funds`).
 *
 * @example
 * import { type Client, InsufficientGasError, type SignedPayment } from '@tollkeeper/sdk'
 *
 * // Leaves a payment to the gateway's next batch if the facilitator has run out of gas.
 * export async function settle(client: Client, payment: SignedPayment) {
 *   return client.settleNow(payment).catch((error: unknown) => {
 *     if (error instanceof InsufficientGasError) return undefined
 *     throw error
 *   })
 * }
 */
export class InsufficientGasError extends ClientError {
  override readonly name = 'InsufficientGasError'

  constructor(detail: string, options?: ClientErrorOptions) {
    super('insufficient_gas_funds', `Insufficient ETH for gas: ${detail}`, options)
  }
}

/**
 * Thrown if the gateway refused the payment; `code` is the gateway's error code, or `payment_refused` if the response has none.
 *
 * @example
 * import { PaymentVerificationError } from '@tollkeeper/sdk'
 *
 * export const hasExpired = (error: unknown) =>
 *   error instanceof PaymentVerificationError && error.code === 'macaroon_expired'
 */
export class PaymentVerificationError extends ClientError {
  override readonly name = 'PaymentVerificationError'

  constructor(code: ClientErrorCode, detail: string, options?: ClientErrorOptions) {
    super(code, `Payment verification failed (402 ${code}): ${detail}`, { status: 402, ...options })
  }
}

/**
 * Thrown if the challenge or authorization was used before (`payment_replayed`). The client didn't sign another payment. `paymentId` is the
 * id of the payment that used it.
 *
 * @example
 * import { PaymentReplayedError } from '@tollkeeper/sdk'
 *
 * export const paidBefore = (error: unknown) =>
 *   error instanceof PaymentReplayedError ? error.paymentId : undefined
 */
export class PaymentReplayedError extends ClientError {
  override readonly name = 'PaymentReplayedError'

  constructor(detail: string, options?: ClientErrorOptions) {
    super('payment_replayed', `Payment was already used (409): ${detail}`, { status: 409, ...options })
  }
}

/**
 * Thrown if a payment will not settle: it failed permanently (`settlement_failed`) or was voided (`payment_voided`).
 *
 * @example
 * import { SettlementError } from '@tollkeeper/sdk'
 *
 * export const isVoided = (error: unknown) =>
 *   error instanceof SettlementError && error.code === 'payment_voided'
 */
export class SettlementError extends ClientError {
  override readonly name = 'SettlementError'
}

/**
 * Thrown for any other response that isn't 2xx; `code` is the error code in the response, or `http_error` if it has none.
 *
 * @example
 * import { HttpError } from '@tollkeeper/sdk'
 *
 * export const isMissing = (error: unknown) => error instanceof HttpError && error.status === 404
 */
export class HttpError extends ClientError {
  override readonly name = 'HttpError'
}

/** The fields that could be read from problem details (RFC 9457), or from a challenge with a code. */
export type Problem = { code: ErrorCode | undefined; detail: string; paymentId: string | undefined }

export function readProblem(status: number, body: unknown): Problem {
  const { code, detail, title, error, paymentId } = (
    typeof body === 'object' && body !== null ? body : {}
  ) as Record<string, unknown>
  const text = [detail, error, title].find((candidate) => typeof candidate === 'string')
  return {
    code: isErrorCode(code) ? code : undefined,
    detail: typeof text === 'string' ? text : `the response status was ${status}`,
    paymentId: typeof paymentId === 'string' ? paymentId : undefined,
  }
}

/** Returns the seller's name for an error message: the URL's origin. The URL of an MCP tool has no origin, so the whole URL is the name. */
function sellerOf(url: string): string {
  const { origin, href } = new URL(url)
  return origin === 'null' ? href : origin
}

/** Returns why a `fetch` failed. The error's own message is only "fetch failed". */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return 'connection failed'
  return cause.cause instanceof Error && cause.cause.message !== '' ? cause.cause.message : cause.message
}
