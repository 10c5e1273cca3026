import type { Address, Hash } from 'viem'
import { parseDollars } from '../protocol/amount.ts'
import { TollkeeperError } from '../protocol/errors.ts'
import { zeroHash } from '../protocol/receipt.ts'
import { type Closable, disposable } from './dispose.ts'
import {
  type ClientError,
  HttpError,
  InsufficientBalanceError,
  PaymentReplayedError,
  PaymentVerificationError,
  readProblem,
} from './errors.ts'
import type { OwnLimit } from './limits.ts'
import type { Asked } from './offers.ts'
import { outcomeOf, type Paid } from './outcome.ts'
import { acceptChallenge, createPaymentFlow, type PaymentOptions, requireHttpUrl } from './paymentFlow.ts'
import { withPayment } from './presentation.ts'
import type { Quote } from './quote.ts'
import { fetchPaid } from './redirects.ts'
import { digestOf } from './sentBody.ts'
import type { Settlement, WaitOptions } from './settlement.ts'
import type { PaymentHeader, SellerReport, SignedPayment } from './signedPayment.ts'
import { type Answer, type Deadline, readAnswer, send, startDeadline, toNetworkError } from './transport.ts'
import { createPayingFetch, type PayingFetch, type TabMethods } from './wrapFetch.ts'

/** Options of {@link createClient} (conformance 4.6). */
export type ClientOptions = PaymentOptions & {
  /** A facilitator for {@link Client.settleNow}. */
  facilitatorUrl?: string
  /** Timeout in ms for a whole request, including the payment. Default 30,000. */
  timeout?: number
  /** Interval in ms between requests to the gateway in {@link Client.waitForSettlement}. Default 2,000. */
  pollingInterval?: number
  /** Base URL for relative paths. Default: `gatewayUrl`. */
  baseUrl?: string
  /** Maximum number of bytes to read from a response, after decompression. Default 16,777,216 (16 MiB). */
  maxResponseBytes?: number
  /** Replaces the global `fetch`. */
  fetch?: typeof globalThis.fetch
}

/** Options of {@link Client.request} (conformance 4.6). */
export type RequestOptions = {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** An object is sent as JSON. Streams, forms and bytes are rejected, because the client may have to send the body twice. */
  body?: object | string
  headers?: Record<string, string>
  /** Timeout in ms for this request. */
  timeout?: number
  signal?: AbortSignal
  /** Maximum price of this request, in decimal USDC such as `'0.10'` or `'$0.10'`. The client's own limits also apply. */
  maxUsdc?: string | number
  /** The payment that an earlier attempt of this request signed ({@link ClientError.payment}). The client presents it again. */
  payment?: SignedPayment
}

/** Response of {@link Client.request}, with the receipt if the request was paid for (conformance 4.6). */
export type PaidResponse<Data = unknown> = {
  /** Parsed JSON, text as a string, or anything else as bytes. Null if there is no body. */
  data: Data
  status: number
  headers: Headers
  /** The gateway's receipt (JWS compact), as the provider sent it. Undefined if the request was free. */
  receipt: string | undefined
  /**
   * Transaction that settled the payment. Undefined until it has settled (see {@link Client.waitForSettlement}). It comes only from a receipt that
   * the gateway signed for this payment, never from other data that a provider sends.
   */
  paymentTxHash: Hash | undefined
  /**
   * Id of the payment, from `receipt`. Undefined if the gateway didn't sign `receipt` for this payment, or if the gateway's keys couldn't be
   * fetched.
   */
  paymentId: string | undefined
  /** The signed payment. Undefined if the request was free. */
  payment: SignedPayment | undefined
  /** The seller's report on the payment, if the seller doesn't use Tollkeeper. Undefined for Tollkeeper's sellers. */
  sellerReport: SellerReport | undefined
  /** The error that `onReceipt` threw. The receipt may therefore not have been stored. */
  receiptError?: unknown
}

/** Options of {@link Client.quote}. */
export type QuoteOptions = Pick<
  RequestOptions,
  'method' | 'body' | 'headers' | 'timeout' | 'signal' | 'maxUsdc'
>

/**
 * A client that pays. Each method call has one deadline for everything that it does.
 *
 * `await using client = createClient(…)` closes its tabs at the end of the block, in runtimes that have `Symbol.asyncDispose`.
 */
export type Client = Closable &
  TabMethods & {
    /** The paying wallet. */
    address: Address
    /**
     * Requests a resource, and pays for it if the response is a 402.
     *
     * @param path an absolute URL, or a path on `baseUrl`, which can't lead to another origin.
     * @throws {TypeError} for an invalid request.
     * @throws {ProtocolError} `invalid_field` for a `maxUsdc` that isn't an amount.
     * @throws {ClientError} with a stable `code`; see `errors.ts` for its classes.
     */
    request<Data = unknown>(path: string, options?: RequestOptions): Promise<PaidResponse<Data>>
    /**
     * A `fetch` that pays, like the function that {@link wrapFetch} returns. It shares this client's limits, tabs, stores, and memory of payments
     * whose response was lost. You can pass it on without binding `this`. Like the global `fetch`, it requires absolute URLs and has no timeout.
     */
    fetch: PayingFetch
    /**
     * Returns the price of a request without paying. It works for Tollkeeper's sellers and for any x402 seller. The client signs nothing, counts
     * nothing as spent, and doesn't call `limits.onPayment`. It sends the request unchanged, so a free request is served.
     *
     * @param path as for {@link Client.request}.
     * @throws {ChallengeRefusedError} for a 402 that this client can't pay, for example because it offers only another token.
     * @throws {ClientError} as {@link Client.request}, for any other error response.
     * @example
     * import { type Client } from '@tollkeeper/sdk'
     *
     * // Buys only what costs a cent or less.
     * export async function readCheap(client: Client, url: string) {
     *   const { amount, price, isAllowed, refusal } = await client.quote(url)
     *   if (!isAllowed) throw new Error(refusal?.message)
     *   if (amount > 10_000n) throw new Error(`${price} USDC is too much`)
     *   return (await client.request(url, { maxUsdc: price })).data
     * }
     */
    quote(path: string, options?: QuoteOptions): Promise<Quote>
    /**
     * Waits until a payment is settled and confirmed on chain.
     *
     * @throws {SettlementError} if it failed permanently or was voided.
     * @throws {RequestTimeoutError}
     */
    waitForSettlement(paymentId: string, options?: WaitOptions): Promise<Settlement>
    /**
     * Settles a payment immediately through `facilitatorUrl`, instead of with the gateway's next batch.
     *
     * @throws {InsufficientGasError}
     */
    settleNow(
      payment: SignedPayment,
      options?: { timeout?: number; signal?: AbortSignal },
    ): Promise<{ paymentTxHash: Hash }>
  }

/** Bodies that `fetch` accepts but `JSON.stringify` would silently turn into `{}`. Listed by name, because React Native lacks `ReadableStream`. */
const notJson = ['ReadableStream', 'FormData', 'URLSearchParams', 'Blob', 'ArrayBuffer', 'Uint8Array']

/**
 * Creates a client that pays for HTTP requests in USDC (conformance 4.6).
 *
 * @throws {TypeError} for an invalid key, URL or host, or a missing `usdcAddress`.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 * @example
 * import { createClient } from '@tollkeeper/sdk'
 *
 * export async function readWeather() {
 *   const client = createClient({
 *     gatewayUrl: 'https://gateway.example',
 *     walletPrivateKey: process.env.WALLET_PRIVATE_KEY,
 *     network: 'base',
 *     limits: { perPayment: '0.10', perDay: '5' },
 *   })
 *   const { data, receipt, paymentId } = await client.request('https://api.example/weather')
 *   return { data, receipt, paymentId }
 * }
 */
export function createClient(options: ClientOptions): Client {
  const { gatewayUrl, facilitatorUrl, baseUrl = gatewayUrl, timeout: defaultTimeoutMs = 30_000 } = options
  const { pollingInterval, maxResponseBytes } = options
  const fetch = options.fetch ?? globalThis.fetch.bind(globalThis)
  const { tabs = false } = options
  const flow = createPaymentFlow({ ...options, tabs }, fetch)
  requireHttpUrl('baseUrl', baseUrl)
  if (facilitatorUrl !== undefined) requireHttpUrl('facilitatorUrl', facilitatorUrl)
  const { address, log, receiptKeys } = flow
  const gateway = { fetch, log, defaultTimeoutMs, receiptKeys }

  const sendPaid = (input: string | URL | Request, init: RequestInit = {}) =>
    fetchPaid(fetch, { url: String(input), init })

  async function quote(path: string, quoteOptions: QuoteOptions = {}): Promise<Quote> {
    const url = resolve(path, baseUrl)
    const init = toRequestInit(quoteOptions)
    const own = ownLimitOf(quoteOptions)
    const { timeout = defaultTimeoutMs, signal } = quoteOptions
    const deadline = startDeadline(timeout, signal, maxResponseBytes)
    try {
      const response = await fetch(url, { ...init, signal: deadline.signal })
      if (response.ok) {
        void response.body?.cancel().catch(() => {})
        return await flow.quoteFree(url)
      }
      const answer = await readAnswer(response, url, deadline)
      if (answer.status !== 402) throw toError({ answer, payment: undefined })
      return await flow.quote(askedOf(url, init), answer, own)
    } catch (error) {
      throw error instanceof TollkeeperError ? error : toNetworkError(error, url, deadline)
    } finally {
      deadline.signal.end?.()
    }
  }

  async function request<Data>(
    path: string,
    requestOptions: RequestOptions = {},
  ): Promise<PaidResponse<Data>> {
    const url = resolve(path, baseUrl)
    const init = toRequestInit(requestOptions)
    const own = ownLimitOf(requestOptions)
    const { timeout = defaultTimeoutMs, signal, payment } = requestOptions
    const deadline = startDeadline(timeout, signal, maxResponseBytes)
    const attempt = {
      asked: askedOf(url, init),
      own,
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
    // Also take the receipt of an error response, such as a 404, because the request was charged.
    const { receipt, claims, ...failure } = await flow.takeReceipt(answer, payment, deadline)
    const sellerReport = await flow.readReport(paid)
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
    fetch: createPayingFetch(fetch, flow, options),
    quote,
    waitForSettlement: async (paymentId, waitOptions = {}) => {
      const interval = pollingInterval === undefined ? {} : { pollingInterval }
      const { waitForSettlement } = await import('./settlement.ts')
      return waitForSettlement(gatewayUrl, paymentId, { ...interval, ...waitOptions }, gateway)
    },
    settleNow: async (payment, settleOptions = {}) => {
      if (!facilitatorUrl) throw new TypeError('settleNow needs the option facilitatorUrl')
      const { settleNow } = await import('./settlement.ts')
      return settleNow(facilitatorUrl, payment, settleOptions, gateway)
    },
    tabs: flow.tabs,
    close: flow.close,
    ...disposable(flow.close),
  }
}

function ownLimitOf({ maxUsdc }: Pick<RequestOptions, 'maxUsdc'>): OwnLimit | undefined {
  return maxUsdc === undefined
    ? undefined
    : { amount: parseDollars(maxUsdc), option: 'maxUsdc of this request' }
}

/**
 * Describes a request, so that its payment can be found again if the request is repeated. The body is digested as in the paying `fetch`, so that
 * `client.fetch` can present a payment that `client.request` signed, and vice versa.
 */
function askedOf(url: string, { method, headers, body }: SentInit): Asked {
  return { method, url, headers, body: () => digestOf(body ?? '') }
}

/** Resolves the URL of a request. A path can't leave `baseUrl`'s origin, not even as `//host` or `/\host`. */
function resolve(path: string, baseUrl: string): string {
  const url = new URL(path, baseUrl)
  const isAbsolute = /^https?:\/\//i.test(path)
  if (!isAbsolute && url.origin !== new URL(baseUrl).origin) {
    throw new TypeError(`A request needs an http(s) URL or a path on ${baseUrl}, got ${path}`)
  }
  if (url.username || url.password) throw new TypeError('A URL that contains credentials can’t be requested')
  return url.href
}

/** A request in the form of `fetch`. Its body is text. */
type SentInit = Omit<RequestInit, 'body'> & { method: string; headers: Headers; body?: string }

function toRequestInit({
  method,
  body,
  headers,
}: Pick<RequestOptions, 'method' | 'body' | 'headers'>): SentInit {
  const init: SentInit = {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: new Headers(headers),
  }
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

/** Returns the error that a client throws for a response that isn't 2xx. */
export function toError({ answer, payment, report }: Paid<Answer>, sellerReport?: SellerReport): ClientError {
  const { status, body } = answer
  const problem = readProblem(status, body)
  const { code, paymentId: named } = problem
  const detail = sellerReport?.reason ?? problem.detail
  const paymentId = named ?? answer.headers.get('service-payment-id') ?? undefined
  const { outcome, isAccepted } = report
    ? outcomeOf(report)
    : { outcome: 'served' as const, isAccepted: true }
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
