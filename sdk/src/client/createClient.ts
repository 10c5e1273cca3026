import type { Address, Hash } from 'viem'
import { zeroHash } from '../protocol/receipt.ts'
import {
  type ClientError,
  HttpError,
  InsufficientBalanceError,
  PaymentReplayedError,
  PaymentVerificationError,
  readProblem,
} from './errors.ts'
import { outcomeOf, type Paid } from './outcome.ts'
import { acceptChallenge, createPaymentFlow, type PaymentOptions, requireHttpUrl } from './paymentFlow.ts'
import { withPayment } from './presentation.ts'
import { fetchPaid } from './redirects.ts'
import { type Settlement, settleNow, waitForSettlement } from './settlement.ts'
import type { PaymentHeader, SellerReport, SignedPayment } from './signedPayment.ts'
import type { OpenTab } from './tabs.ts'
import { type Answer, type Deadline, send, startDeadline } from './transport.ts'

/** Options of {@link createClient} (conformance 4.6). */
export type ClientOptions = PaymentOptions & {
  /** A facilitator for {@link Client.settleNow}. */
  facilitatorUrl?: string
  /** Milliseconds for a whole request, payment included. Default 30,000. */
  timeout?: number
  /** The URL that paths are resolved against. Default: `gatewayUrl`. */
  baseUrl?: string
  /** Most bytes of an answer that are read, after decompression. Default 16,777,216 (16 MiB). */
  maxResponseBytes?: number
  /** Instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch
}

/** Options of {@link Client.request} (conformance 4.6). */
export type RequestOptions = {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** An object is sent as JSON. Streams, forms and bytes are refused, because the body is sent twice. */
  body?: object | string
  headers?: Record<string, string>
  /** Milliseconds for this request. */
  timeout?: number
  signal?: AbortSignal
  /** The payment that an earlier attempt of this request signed ({@link ClientError.payment}), to present it again. */
  payment?: SignedPayment
}

/** The answer to {@link Client.request}, with the receipt if it was paid for (conformance 4.6). */
export type PaidResponse<Data = unknown> = {
  /** Parsed JSON, text as a string, anything else as bytes; null without a body. */
  data: Data
  status: number
  headers: Headers
  /** The gateway's receipt (JWS compact), as the provider sent it; undefined if nothing had to be paid. */
  receipt: string | undefined
  /**
   * Transaction that settled the payment; undefined until then, see {@link Client.waitForSettlement}. Taken only
   * from a receipt that the gateway signed for this payment, never from anything else that a provider sends.
   */
  paymentTxHash: Hash | undefined
  /** Taken from the same receipt; also undefined if the gateway's keys can't be fetched. */
  paymentId: string | undefined
  /** What was signed; undefined if nothing had to be paid. */
  payment: SignedPayment | undefined
  /** What a seller that isn't Tollkeeper's reports on the payment; undefined for all others. */
  sellerReport: SellerReport | undefined
  /** The error of `onReceipt`, after which the receipt may not have been kept. */
  receiptError?: unknown
}

/** A client that pays. Each of its methods keeps to one deadline. */
export type Client = {
  /** The paying wallet. */
  address: Address
  /**
   * Requests a resource, and pays for it if it answers 402.
   *
   * @param path an absolute URL, or a path on `baseUrl`, from which it can't lead to another origin.
   * @throws {TypeError} for a request that can't be sent.
   * @throws {ClientError} with a stable `code`; see `errors.ts` for its classes.
   */
  request<Data = unknown>(path: string, options?: RequestOptions): Promise<PaidResponse<Data>>
  /**
   * Waits until a payment is settled and confirmed on chain.
   *
   * @throws {SettlementError} if it failed for good or was voided.
   * @throws {RequestTimeoutError}
   */
  waitForSettlement(
    paymentId: string,
    options?: { timeoutMs?: number; pollMs?: number; signal?: AbortSignal },
  ): Promise<Settlement>
  /**
   * Has a payment settled at once through `facilitatorUrl`, instead of with the gateway's next batch.
   *
   * @throws {InsufficientGasError}
   */
  settleNow(
    payment: SignedPayment,
    options?: { timeout?: number; signal?: AbortSignal },
  ): Promise<{ paymentTxHash: Hash }>
  /**
   * Returns the open tabs: with which gateway, and what is on them.
   *
   * @throws {ChallengeRefusedError} `tab_store_failed`
   */
  tabs(): Promise<OpenTab[]>
  /**
   * Closes all tabs, each with exactly what was bought on it, once no request is on its way. Otherwise a tab's gateway closes it
   * after minutes without a request. A tab that is too small to settle stays open. Later requests open new tabs.
   *
   * @throws {HttpError} if the gateway refuses it.
   * @throws {NetworkError}
   * @throws {RequestTimeoutError}
   */
  close(): Promise<void>
}

/** Bodies that `fetch` accepts and JSON would silently turn into `{}`. React Native has no streams. */
const notJson = ['ReadableStream', 'FormData', 'URLSearchParams', 'Blob', 'ArrayBuffer', 'Uint8Array']

/**
 * Creates a client that pays for HTTP requests in USDC (conformance 4.6).
 *
 * @throws {TypeError} for a key, URL, host or missing `usdcAddress` that it can't work with.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 * @example
 * import { createClient } from '@tollkeeper/sdk'
 *
 * export async function readWeather() {
 *   const client = createClient({
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     maxPaymentUsdc: '0.10',
 *     maxDailyUsdc: '5',
 *   })
 *   const { data, receipt, paymentId } = await client.request('https://api.example/weather')
 *   return { data, receipt, paymentId }
 * }
 */
export function createClient(options: ClientOptions): Client {
  const { gatewayUrl, facilitatorUrl, baseUrl = gatewayUrl, timeout: defaultTimeoutMs = 30_000 } = options
  const fetch = options.fetch ?? globalThis.fetch.bind(globalThis)
  const { tabs = false } = options
  const flow = createPaymentFlow({ ...options, tabs }, fetch)
  requireHttpUrl('baseUrl', baseUrl)
  if (facilitatorUrl !== undefined) requireHttpUrl('facilitatorUrl', facilitatorUrl)
  const { address, log, receiptKeys } = flow
  const gateway = { fetch, log, defaultTimeoutMs, receiptKeys }

  const sendPaid = (input: string | URL | Request, init: RequestInit = {}) =>
    fetchPaid(fetch, { url: String(input), init })

  async function request<Data>(
    path: string,
    requestOptions: RequestOptions = {},
  ): Promise<PaidResponse<Data>> {
    const url = resolve(path, baseUrl)
    const init = toRequestInit(requestOptions)
    const { timeout = defaultTimeoutMs, signal, payment } = requestOptions
    const deadline = startDeadline(timeout, signal, options.maxResponseBytes)
    const attempt = {
      asked: { method: init.method, url, headers: init.headers, body: init.body },
      send: (header: PaymentHeader, within: Deadline) =>
        send(sendPaid, url, withPayment(init, header), within),
      deadline,
      hasAuthorization: init.headers.has('authorization'),
    }
    try {
      if (payment) return await toResponse<Data>(await flow.presentGiven(attempt, payment), deadline)
      log(`${init.method} ${url}`)
      let paid = await flow.payRemembered(attempt)
      if (!paid) {
        const answer = await send(fetch, url, init, deadline)
        if (answer.status !== 402) return await toResponse<Data>({ answer, payment: undefined }, deadline)
        paid = await flow.pay(attempt, answer)
      }
      return await toResponse<Data>(paid, deadline)
    } finally {
      deadline.signal.end?.()
    }
  }

  async function toResponse<Data>(paid: Paid<Answer>, deadline: Deadline): Promise<PaidResponse<Data>> {
    const { answer, payment } = paid
    // The receipt of an error, such as a 404, counts, too: it was charged.
    const { receipt, claims, ...failure } = await flow.takeReceipt(answer, payment, deadline)
    const sellerReport = flow.readReport(paid)
    if (answer.status < 200 || answer.status > 299) throw toError(paid, sellerReport)
    return {
      data: answer.body as Data,
      status: answer.status,
      headers: answer.headers,
      receipt,
      paymentTxHash: claims && claims.transactionHash !== zeroHash ? claims.transactionHash : undefined,
      paymentId: claims?.paymentId,
      payment,
      sellerReport,
      ...failure,
    }
  }

  return {
    address,
    request,
    waitForSettlement: (paymentId, waitOptions = {}) =>
      waitForSettlement(gatewayUrl, paymentId, waitOptions, gateway),
    settleNow: async (payment, settleOptions = {}) => {
      if (!facilitatorUrl) throw new TypeError('settleNow needs the option facilitatorUrl')
      return settleNow(facilitatorUrl, payment, settleOptions, gateway)
    },
    tabs: flow.tabs,
    close: flow.close,
  }
}

/** The URL of a request. A path, `//host` and `/\host` included, can't leave `baseUrl`'s origin. */
function resolve(path: string, baseUrl: string): string {
  const url = new URL(path, baseUrl)
  const isAbsolute = /^https?:\/\//i.test(path)
  if (!isAbsolute && url.origin !== new URL(baseUrl).origin) {
    throw new TypeError(`A request needs an http(s) URL or a path on ${baseUrl}, got ${path}`)
  }
  if (url.username || url.password) throw new TypeError('A URL with credentials in it can not be requested')
  return url.href
}

function toRequestInit({
  method,
  body,
  headers,
}: RequestOptions): RequestInit & { method: string; headers: Headers } {
  const init = { method: method ?? (body === undefined ? 'GET' : 'POST'), headers: new Headers(headers) }
  acceptChallenge(init.headers)
  if (body === undefined) return init
  if (init.method === 'GET') throw new TypeError('A GET request has no body')
  if (typeof body === 'string') return { ...init, body }
  if (notJson.some((type) => isInstance(body, type))) {
    throw new TypeError(`The body must be an object for JSON, or a string, got ${body.constructor.name}`)
  }
  if (!init.headers.has('content-type')) init.headers.set('content-type', 'application/json')
  return { ...init, body: JSON.stringify(body) }
}

function isInstance(body: object, type: string): boolean {
  const found = (globalThis as Record<string, unknown>)[type]
  return typeof found === 'function' && body instanceof found
}

/** Returns the error that a client throws for an answer that isn't 2xx. */
export function toError({ answer, payment, word }: Paid<Answer>, sellerReport?: SellerReport): ClientError {
  const { status, body } = answer
  const problem = readProblem(status, body)
  const { code, paymentId: named } = problem
  const detail = sellerReport?.reason ?? problem.detail
  const paymentId = named ?? answer.headers.get('service-payment-id') ?? undefined
  const { outcome, isAccepted } = word ? outcomeOf(word) : { outcome: 'served' as const, isAccepted: true }
  const options = {
    status,
    body,
    ...(paymentId && { paymentId }),
    ...(payment && { payment, outcome, isAccepted }),
    sellerReport,
  }
  if (status === 402) {
    return code === 'insufficient_balance'
      ? new InsufficientBalanceError(detail, options)
      : new PaymentVerificationError(code ?? 'payment_refused', detail, options)
  }
  if (status === 409 && code === 'payment_replayed') return new PaymentReplayedError(detail, options)
  const isVoided = answer.headers.get('service-payment-status') === 'voided'
  return new HttpError(
    code ?? 'http_error',
    `Request failed with status ${status}: ${detail}${isVoided ? ' (the payment was voided)' : ''}`,
    options,
  )
}
