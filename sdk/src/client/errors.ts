import { type ErrorCode, isErrorCode } from '../protocol/errors.ts'
import { parsePayload } from '../protocol/payload.ts'
import { isoTime } from '../protocol/time.ts'
import type { SellerReport, SignedExactPayment, SignedPayment, SignedTabPayment } from './signedPayment.ts'

/**
 * A stable code of a {@link ClientError}: an {@link ErrorCode} of the gateway, the provider or the protocol, or one that
 * arises in the client itself.
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

/** Why a challenge was not paid. */
export type ChallengeRefusal =
  | 'challenge_refused'
  | 'host_not_allowed'
  | 'spending_limit_exceeded'
  | 'spending_store_failed'
  | 'tab_store_failed'
  | 'payment_declined'
  | 'wallet_on_another_chain'
  | 'smart_account_not_deployed'
  | 'signature_not_supported'
  | 'signed_by_another_key'
  | 'signing_failed'
  | 'body_not_replayable'

/**
 * How a failed request has ended for the payer.
 *
 * - `served`: it is charged, and this error is its answer, such as a 404.
 * - `not_charged`: nobody was shown a signature, or the gateway charges nothing for it. It may be paid anew.
 * - `unknown`: somebody was shown a signature, and may charge it until `settlesUntil`. `advice` says what to do.
 */
export type PaymentOutcome = 'served' | 'not_charged' | 'unknown'

/** What a client error carries besides its code and message. */
export type ClientErrorOptions = {
  /** Default: `unknown` if something was signed and sent. */
  outcome?: PaymentOutcome | undefined
  /** Whether the gateway says that it has accepted the payment. */
  isAccepted?: boolean | undefined
  cause?: unknown
  /** HTTP status of the answer, if there was one. */
  status?: number
  /** Parsed body of the answer, if there was one. */
  body?: unknown
  /** What was signed and sent before the error: pass it to `request` again rather than pay anew. */
  payment?: SignedPayment
  paymentId?: string
  sellerReport?: SellerReport | undefined
}

/**
 * The base of every error that the client throws. `code` is stable, and the message is for people.
 *
 * @example
 * import { type Client, ClientError } from '@tollkeeper/sdk'
 *
 * // Repeats a request whose answer was lost after payment. It can't be charged twice.
 * export async function requestSafely(client: Client, path: string) {
 *   return client.request(path).catch((error: unknown) => {
 *     if (error instanceof ClientError && error.payment) return client.request(path, { payment: error.payment })
 *     throw error
 *   })
 * }
 */
export class ClientError extends Error {
  override readonly name: string = 'ClientError'
  readonly code: ClientErrorCode
  readonly status: number | undefined
  readonly body: unknown
  /**
   * What was signed and sent before the error, if anything was. It may have been charged: repeat the request with
   * `request(path, { ...options, payment: error.payment })`, which can't be charged twice.
   */
  readonly payment: SignedPayment | undefined
  readonly paymentId: string | undefined
  /** How it ended for the payer. */
  readonly outcome: PaymentOutcome
  /** Whether the gateway says that it has accepted the payment; undefined if it wasn't asked, or gave no answer. */
  readonly isAccepted: boolean | undefined
  /** What a seller that isn't Tollkeeper's reports on the payment, such as why it refused it. */
  readonly sellerReport: SellerReport | undefined

  constructor(code: ClientErrorCode, message: string, options: ClientErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.status = options.status
    this.body = options.body
    this.payment = options.payment
    this.paymentId = options.paymentId
    this.isAccepted = options.isAccepted
    this.sellerReport = options.sellerReport
    this.outcome = options.outcome ?? (options.payment ? 'unknown' : 'not_charged')
  }

  /** Unix seconds until which the signed payment can settle. Undefined if nothing was signed. */
  get settlesUntil(): number | undefined {
    return this.payment && settlesUntil(this.payment)
  }

  /** What to do if the outcome is `unknown`, in words. */
  get advice(): string | undefined {
    if (this.outcome !== 'unknown' || !this.payment) return undefined
    return adviceFor(this.payment, this)
  }
}

/** Until when what was signed can settle, Unix seconds. */
export function settlesUntil(payment: SignedPayment): number {
  if (payment.tab) return payment.tab.expiry
  return Math.max(...payment.payloads.map((payload) => Number(parsePayload(payload).validBefore)))
}

/** The path at which a gateway tells the state of a payment. */
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
  // The client remembers nothing once a seller has given its last word.
  const isOpen =
    payment.header ||
    status === undefined ||
    status >= 500 ||
    [408, 425, 429].includes(status) ||
    (status === 402 && isAccepted !== false)
  return (
    `${isAccepted ? 'The gateway has accepted this payment' : `It may be charged until ${until}`}. ` +
    (isOpen
      ? 'Repeat the same request: the same payment is presented again, and can not be charged twice. '
      : 'Who was paid says that there is nothing more to be had for it; a further request pays anew. ') +
    // No gateway knows it.
    (payment.header
      ? ''
      : `GET /${pathOfPayment(payment)} of the gateway says what became of it${payment.tab ? ", with the state's signature in the header Tab-Signature. " : '; '}`) +
    (payment.tab ? '' : "USDC's cancelAuthorization takes back what is not used yet.")
  ).trimEnd()
}

/**
 * Thrown if no answer came within the timeout (`timeout`).
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
    super('timeout', `Request timeout: no answer within ${timeoutMs} ms`, options)
  }
}

/**
 * Thrown if the caller's `signal` fired after the payment was sent (`aborted`). Before that, the client throws the
 * signal's own reason.
 *
 * @example
 * import { RequestAbortedError } from '@tollkeeper/sdk'
 *
 * // The payment that an aborted request has sent, to be presented again.
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
 * Thrown for a challenge that this client does not pay. Nobody was shown a signature, so nothing can be charged. `code` says why:
 *
 * - `challenge_refused`: it can't be read, or is for another origin, network, token or gateway than this client pays.
 * - `host_not_allowed`: the seller is not among `allowedHosts`.
 * - `spending_limit_exceeded`: the price is over `maxPaymentUsdc`, or more than the daily limits leave.
 * - `spending_store_failed`: the store of the daily sums failed; `cause` says how.
 * - `tab_store_failed`: the store of open tabs failed; `cause` says how.
 * - `payment_declined`: `onPayment` refused it, or the wallet's owner did.
 * - `wallet_on_another_chain`: the wallet signs only for the chain that it is on.
 * - `smart_account_not_deployed`: the payer's contract isn't on the chain yet, so USDC can't ask it (ERC-1271).
 * - `signature_not_supported`: the payer's signature is shorter or longer than a payment can carry.
 * - `signed_by_another_key`: the payer's signature isn't of its own key.
 * - `signing_failed`: the payer could not sign; `cause` says why.
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
 * Thrown if the payer's USDC does not cover this payment and its unsettled ones (`insufficient_balance`).
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
 * Thrown if the gateway refused the payment; `code` is the gateway's, or `payment_refused` if it gave none.
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
 * Thrown if the challenge or authorization was used before (`payment_replayed`). Nothing was signed again.
 * `paymentId` names the first payment.
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
 * Thrown if a payment will not settle: it failed for good (`settlement_failed`) or was voided (`payment_voided`).
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
 * Thrown for any other answer that isn't 2xx; `code` is the answer's, or `http_error`.
 *
 * @example
 * import { HttpError } from '@tollkeeper/sdk'
 *
 * export const isMissing = (error: unknown) => error instanceof HttpError && error.status === 404
 */
export class HttpError extends ClientError {
  override readonly name = 'HttpError'
}

/** Problem details (RFC 9457) or a challenge with a code, as far as they can be read. */
export type Problem = { code: ErrorCode | undefined; detail: string; paymentId: string | undefined }

export function readProblem(status: number, body: unknown): Problem {
  const { code, detail, title, error, paymentId } = (
    typeof body === 'object' && body !== null ? body : {}
  ) as Record<string, unknown>
  const text = [detail, error, title].find((candidate) => typeof candidate === 'string')
  return {
    code: isErrorCode(code) ? code : undefined,
    detail: typeof text === 'string' ? text : `the answer was ${status}`,
    paymentId: typeof paymentId === 'string' ? paymentId : undefined,
  }
}

/** An MCP tool has no origin, so its URL names the seller. */
function sellerOf(url: string): string {
  const { origin, href } = new URL(url)
  return origin === 'null' ? href : origin
}

/** The reason of a failed `fetch`, whose own message is only "fetch failed". */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return 'connection failed'
  return cause.cause instanceof Error && cause.cause.message !== '' ? cause.cause.message : cause.message
}
