import { type ErrorCode, isErrorCode } from '../protocol/errors.ts'
import type { SignedPayment } from './payment.ts'

/** Codes that arise in the client itself; the others come from the gateway, the provider or the protocol. */
export type ClientErrorCode =
  | ErrorCode
  | 'timeout'
  | 'aborted'
  | 'network_error'
  | 'challenge_refused'
  | 'payment_refused'
  | 'http_error'
  | 'response_too_large'

export type ClientErrorOptions = {
  cause?: unknown
  /** HTTP status of the answer, where there was one. */
  status?: number
  /** Parsed body of the answer, where there was one. */
  body?: unknown
  /** What was signed and sent before the error: pass it to `request` again rather than pay anew. */
  payment?: SignedPayment
  paymentId?: string
}

/** Every error that the client throws. `code` is stable; the message is for people. */
export class ClientError extends Error {
  override readonly name: string = 'ClientError'
  readonly code: ClientErrorCode
  readonly status: number | undefined
  readonly body: unknown
  /**
   * What was signed and sent before the error, if anything was. The money may have been taken: repeat the request with
   * `request(path, { ...options, payment: error.payment })`, which can't be charged twice.
   */
  readonly payment: SignedPayment | undefined
  readonly paymentId: string | undefined

  constructor(code: ClientErrorCode, message: string, options: ClientErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.status = options.status
    this.body = options.body
    this.payment = options.payment
    this.paymentId = options.paymentId
  }
}

/** No answer within the timeout. */
export class RequestTimeoutError extends ClientError {
  override readonly name = 'RequestTimeoutError'

  constructor(timeoutMs: number, options?: ClientErrorOptions) {
    super('timeout', `Request timeout: no answer within ${timeoutMs} ms`, options)
  }
}

/** The caller gave up, by its `signal`, after the payment was sent. Before that, the signal's own reason is thrown. */
export class RequestAbortedError extends ClientError {
  override readonly name = 'RequestAbortedError'

  constructor(options: ClientErrorOptions) {
    super('aborted', 'Request aborted by the caller after the payment was sent', options)
  }
}

/** The connection failed. */
export class NetworkError extends ClientError {
  override readonly name = 'NetworkError'

  constructor(url: string, options?: ClientErrorOptions) {
    super(
      'network_error',
      `Request failed: network error at ${new URL(url).origin}: ${reasonOf(options?.cause)}`,
      options,
    )
  }
}

/** A challenge that this client will not sign for: another origin, network, token or gateway, or over the limit. */
export class ChallengeRefusedError extends ClientError {
  override readonly name = 'ChallengeRefusedError'

  constructor(reason: string, options?: ClientErrorOptions) {
    super('challenge_refused', `Payment refused by this client (402): ${reason}`, { status: 402, ...options })
  }
}

/** The payer's USDC does not cover this payment and what it has unsettled. */
export class InsufficientBalanceError extends ClientError {
  override readonly name = 'InsufficientBalanceError'

  constructor(detail: string, options?: ClientErrorOptions) {
    super('insufficient_balance', `Insufficient USDC balance (402): ${detail}`, { status: 402, ...options })
  }
}

/** The facilitator's wallet can't pay for the settlement's gas. */
export class InsufficientGasError extends ClientError {
  override readonly name = 'InsufficientGasError'

  constructor(detail: string, options?: ClientErrorOptions) {
    super('insufficient_gas_funds', `Insufficient ETH for gas: ${detail}`, options)
  }
}

/** The gateway refused the payment: wrong network, missing funds or wrong gateway URL, as `code` says. */
export class PaymentVerificationError extends ClientError {
  override readonly name = 'PaymentVerificationError'

  constructor(code: ClientErrorCode, detail: string, options?: ClientErrorOptions) {
    super(code, `Payment verification failed (402 ${code}): ${detail}`, { status: 402, ...options })
  }
}

/** The challenge or authorization was used before. Nothing was signed again; `paymentId` names what was paid. */
export class PaymentReplayedError extends ClientError {
  override readonly name = 'PaymentReplayedError'

  constructor(detail: string, options?: ClientErrorOptions) {
    super('payment_replayed', `Payment was already used (409): ${detail}`, { status: 409, ...options })
  }
}

/** The payment will not settle: it failed for good or was voided. */
export class SettlementError extends ClientError {
  override readonly name = 'SettlementError'
}

/** Any other answer that is not 2xx. */
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

/** fetch says "fetch failed" and hides the reason one cause down. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return 'connection failed'
  return cause.cause instanceof Error && cause.cause.message !== '' ? cause.cause.message : cause.message
}
