import { createRemoteJWKSet, customFetch } from 'jose'
import type { Address, Hash, Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { verifyReceipt } from '../audit/verifyReceipt.ts'
import { encodeAuthorizationHeader, mockAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { challengeMediaType, parseChallenge } from '../protocol/challenge.ts'
import { type NetworkName, networkByName } from '../protocol/networks.ts'
import { parsePayload } from '../protocol/payload.ts'
import { type ReceiptClaims, zeroHash } from '../protocol/receipt.ts'
import { checkChallenge } from './checkChallenge.ts'
import {
  ChallengeRefusedError,
  type ClientError,
  HttpError,
  InsufficientBalanceError,
  NetworkError,
  PaymentReplayedError,
  PaymentVerificationError,
  readProblem,
} from './errors.ts'
import { hostOf, type LimitOptions, readLimits, signWithin, warnWithoutLimit } from './limits.ts'
import { type Payer, priceOf, type SignedPayment, signPayment } from './payment.ts'
import { type Gateway, type Settlement, settleNow, waitForSettlement } from './settlement.ts'
import { type Answer, type Deadline, pause, send, startDeadline, waitFor } from './transport.ts'

/** Options of {@link createClient} (SPEC 4.6). */
export type ClientOptions = LimitOptions & {
  /** Public URL of the gateway whose challenges are paid. */
  gatewayUrl: string
  /** Key of the paying wallet, 0x and 64 hex digits. Never logged, never sent. */
  walletPrivateKey?: Hex | string | undefined
  /** A signer of typed data, such as a viem account, instead of a key. */
  account?: Payer
  /** Network to pay on. Challenges for another one are refused. */
  network: NetworkName
  /** Verbose log of the payment flow through `console.debug`. Default false. */
  debug?: boolean
  /** A facilitator for {@link Client.settleNow}. */
  facilitatorUrl?: string
  /** Milliseconds for a whole request, payment included. Default 30,000. */
  timeout?: number
  /** The URL that paths are resolved against. Default: `gatewayUrl`. */
  baseUrl?: string
  /** USDC's address, where the network's table has none (`localhost`) or a test chain plays a network. */
  usdcAddress?: Address
  /**
   * `one`: a payment is one authorization of the whole price, to the splitter of the provider's part and the platform's.
   * `two`: each part has its own. Default: what the provider's middleware asks for, else `two`.
   */
  signatures?: 'one' | 'two'
  /** Answer challenges with `x402 mock:mock` and sign nothing. For providers in mock mode only. Default false. */
  mockPayments?: boolean
  /** The most bytes of an answer that are read, after decompression. Default 16,777,216 (16 MiB). */
  maxResponseBytes?: number
  /**
   * Called with the receipt of each payment, as it came, before the answer is returned: to keep it for an audit
   * (`openReceiptFile` of `@tollkeeper/sdk/files`). What it throws is the answer's `receiptError`, because the answer was
   * paid for, and isn't lost by it.
   */
  onReceipt?: (paid: PaidReceipt) => void | Promise<void>
  /** Instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch
}

/** What a provider sent for a payment. */
export type PaidReceipt = {
  /** JWS compact. */
  receipt: string
  /** Undefined where the gateway's keys can't be fetched, or the receipt isn't the gateway's for this payment. */
  paymentId: string | undefined
  /** What was paid for. */
  url: string
}

/** Options of {@link Client.request} (SPEC 4.6). */
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

/** The answer to {@link Client.request}, with the receipt where it was paid for (SPEC 4.6). */
export type PaidResponse<Data = unknown> = {
  /** Parsed JSON, text as a string, anything else as bytes; null without a body. */
  data: Data
  status: number
  headers: Headers
  /** The gateway's receipt (JWS compact), as the provider sent it; undefined where nothing had to be paid. */
  receipt: string | undefined
  /**
   * Transaction that settled the payment; undefined until then, see {@link Client.waitForSettlement}. Taken only
   * from a receipt that the gateway signed for this payment, never from anything else that a provider sends.
   */
  paymentTxHash: Hash | undefined
  /** Taken from the same receipt; undefined also where the gateway's keys can't be fetched. */
  paymentId: string | undefined
  /** What was signed; undefined where nothing had to be paid. */
  payment: SignedPayment | undefined
  /** What `onReceipt` threw: the receipt may not have been kept. */
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
   * @throws {SettlementError} where it failed for good or was voided.
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
}

/** How often a paid request is sent again after the connection failed, always with the same authorization. */
const resends = 2
const resendDelayMs = 250

/** Bodies that `fetch` accepts and JSON would silently turn into `{}`. */
const notJson = [ReadableStream, FormData, URLSearchParams, Blob, ArrayBuffer, Uint8Array]

/**
 * Creates a client that pays for HTTP requests in USDC (SPEC 4.6).
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
  const { gatewayUrl, facilitatorUrl, baseUrl = gatewayUrl, mockPayments = false } = options
  const fetch = options.fetch ?? globalThis.fetch.bind(globalThis)
  const network = networkByName(options.network)
  const usdc = (options.usdcAddress ?? network.usdc)?.toLowerCase() as Address | undefined
  const payer = options.account ?? payerOfKey(options.walletPrivateKey)
  const limits = readLimits(options)
  const defaultTimeoutMs = options.timeout ?? 30_000
  const log = options.debug ? (message: string) => console.debug(`[tollkeeper] ${message}`) : () => {}
  for (const [name, url] of Object.entries({ gatewayUrl, baseUrl })) {
    if (!URL.canParse(url)) throw new TypeError(`${name} must be a URL, got ${url}`)
  }
  if (!usdc && !mockPayments) throw new TypeError(`usdcAddress must be given for the network ${network.name}`)
  if (!mockPayments) warnWithoutLimit(options)

  // The keys are fetched once, and again for a key id that isn't among them.
  const receiptKeys = createRemoteJWKSet(new URL(`${gatewayUrl.replace(/\/+$/, '')}/.well-known/jwks.json`), {
    [customFetch]: fetch,
  })
  const gateway = { fetch, log, defaultTimeoutMs, receiptKeys }

  async function request<Data>(
    path: string,
    requestOptions: RequestOptions = {},
  ): Promise<PaidResponse<Data>> {
    const url = resolve(path, baseUrl)
    const init = toRequestInit(requestOptions)
    const deadline = startDeadline(
      requestOptions.timeout ?? defaultTimeoutMs,
      requestOptions.signal,
      options.maxResponseBytes,
    )
    let { payment } = requestOptions
    if (!payment) {
      log(`${init.method} ${url}`)
      const answer = await send(fetch, url, init, deadline)
      if (answer.status !== 402) return toResponse<Data>(answer, undefined, deadline)
      log(`402: payment required`)
      if (mockPayments) {
        log('presenting mock credentials')
        return toResponse<Data>(
          await send(fetch, url, withAuthorization(init, mockAuthorizationHeader), deadline),
          undefined,
          deadline,
        )
      }
      payment = await waitFor(pay(url, answer, deadline), deadline)
    }
    const answer = await sendPaid(url, init, payment, { ...deadline, payment }, gateway)
    return toResponse<Data>(answer, payment, deadline)
  }

  async function toResponse<Data>(
    answer: Answer,
    signed: SignedPayment | undefined,
    deadline: Deadline,
  ): Promise<PaidResponse<Data>> {
    const receipt = answer.headers.get('service-receipt') || undefined
    const claims = receipt ? await readReceipt(receipt, signed, deadline, gateway) : undefined
    // Also of what wasn't found, say: it was charged.
    const kept =
      receipt && signed ? await keep({ receipt, paymentId: claims?.paymentId, url: answer.url }) : {}
    if (answer.status < 200 || answer.status > 299) throw toError(answer, signed)
    return {
      data: answer.body as Data,
      status: answer.status,
      headers: answer.headers,
      receipt,
      paymentTxHash: claims && claims.transactionHash !== zeroHash ? claims.transactionHash : undefined,
      paymentId: claims ? claims.paymentId : undefined,
      payment: signed,
      ...kept,
    }
  }

  async function keep(paid: PaidReceipt): Promise<{ receiptError?: unknown }> {
    try {
      await options.onReceipt?.(paid)
      return {}
    } catch (receiptError) {
      log('onReceipt failed')
      return { receiptError }
    }
  }

  async function pay(url: string, answer: Answer, deadline: Deadline): Promise<SignedPayment> {
    if (!usdc) throw new TypeError('Only a client in mock mode can do without a USDC address')
    const challenge = readChallenge(answer, gatewayUrl)
    checkChallenge(challenge, { url, answeredBy: answer.url, gatewayUrl, network, usdc })
    const { signatures = challenge.signatures ?? 'two' } = options
    const [{ payTo, description }] = challenge.accepts
    const amount = priceOf(challenge)
    const proposed = { url, host: hostOf(url), amount, network: network.name, payTo, description }
    const payment = await signWithin(
      limits,
      { ...proposed, requestId: challenge.requestId },
      deadline,
      () => {
        const { signal } = deadline
        return signPayment(challenge, { payer, network, usdc, now: Date.now() / 1000, signal, signatures })
      },
    )
    log(`signed ${amount} base units for ${payment.requestId} as ${payer.address}`)
    return payment
  }

  return {
    address: payer.address,
    request,
    waitForSettlement: (paymentId, waitOptions = {}) =>
      waitForSettlement(gatewayUrl, paymentId, waitOptions, gateway),
    settleNow: async (payment, settleOptions = {}) => {
      if (!facilitatorUrl) throw new TypeError('settleNow needs the option facilitatorUrl')
      return settleNow(facilitatorUrl, payment, settleOptions, gateway)
    },
  }
}

function payerOfKey(privateKey: string | undefined): Payer {
  try {
    if (privateKey && /^0x[0-9a-fA-F]{64}$/.test(privateKey)) return privateKeyToAccount(privateKey as Hex)
  } catch {
    // Not on the curve. viem's own error would repeat the key.
  }
  throw new TypeError('walletPrivateKey must be 0x and 64 hex digits of a key, or account must be given')
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

function toRequestInit({ method, body, headers }: RequestOptions): RequestInit & { headers: Headers } {
  const init = { method: method ?? (body === undefined ? 'GET' : 'POST'), headers: new Headers(headers) }
  init.headers.set('accept', `${init.headers.get('accept') ?? '*/*'}, ${challengeMediaType}`)
  if (body === undefined) return init
  if (init.method === 'GET') throw new TypeError('A GET request has no body')
  if (typeof body === 'string') return { ...init, body }
  if (notJson.some((type) => body instanceof type)) {
    throw new TypeError(`The body must be an object for JSON, or a string, got ${body.constructor.name}`)
  }
  if (!init.headers.has('content-type')) init.headers.set('content-type', 'application/json')
  return { ...init, body: JSON.stringify(body) }
}

function withAuthorization(init: RequestInit, value: string): RequestInit {
  const headers = new Headers(init.headers)
  headers.set('authorization', value)
  return { ...init, headers }
}

/**
 * Sends a signed payment. When the connection breaks or the settlement is pending, sends the same payment again, which
 * can be charged only once.
 */
async function sendPaid(
  url: string,
  init: RequestInit,
  payment: SignedPayment,
  deadline: Deadline,
  { fetch, log }: Pick<Gateway, 'fetch' | 'log'>,
): Promise<Answer> {
  const paidInit = withAuthorization(init, encodeAuthorizationHeader(payment))
  for (let attempt = 0; ; ) {
    try {
      const answer = await send(fetch, url, paidInit, deadline)
      log(`answer to the paid request: ${answer.status}`)
      if (!isPending(answer)) return answer
      await pause(retryAfterMs(answer), deadline)
    } catch (error) {
      if (!(error instanceof NetworkError) || attempt === resends) throw error
      log('connection failed, presenting the same payment again')
      await pause(resendDelayMs * 2 ** attempt++, deadline)
    }
  }
}

/** The claims of a receipt that the gateway signed for the payment that was sent; undefined for any other receipt. */
async function readReceipt(
  receipt: string,
  signed: SignedPayment | undefined,
  deadline: Deadline,
  { receiptKeys, log }: Pick<Gateway, 'receiptKeys' | 'log'>,
): Promise<ReceiptClaims | undefined> {
  try {
    const claims = await waitFor(verifyReceipt(receipt, receiptKeys), deadline)
    const isOurs = signed?.payloads.every(
      (payload, half) => parsePayload(payload).nonce === claims.authorizations[half]?.nonce,
    )
    if (isOurs ?? true) return claims
    log('the receipt is for another payment')
  } catch (error) {
    log(`the receipt could not be verified: ${error instanceof Error ? error.message : error}`)
  }
  return undefined
}

/**
 * A challenge that names no issuer gets the nonces of this client's own gateway, so that leaving the field out allows
 * nothing: one challenge is still charged once, and another gateway's nonces would be others.
 */
function readChallenge(answer: Answer, gatewayUrl: string) {
  try {
    return parseChallenge(answer.body, gatewayUrl)
  } catch (error) {
    throw new ChallengeRefusedError(
      error instanceof Error ? error.message : 'the challenge can not be read',
      {
        cause: error,
        body: answer.body,
      },
    )
  }
}

/** Whether the gateway has the payment, but serves nothing before it is mined (`SETTLE_BEFORE_SERVE_USDC`). */
function isPending({ status, body }: Answer): boolean {
  return status === 503 && readProblem(status, body).code === 'settlement_pending'
}

function retryAfterMs({ headers }: Answer): number {
  const seconds = Number(headers.get('retry-after') ?? 1)
  return seconds >= 0 && seconds <= 60 ? Math.max(seconds * 1000, resendDelayMs) : 1000
}

function toError(answer: Answer, payment: SignedPayment | undefined): ClientError {
  const { status, body } = answer
  const { code, detail, paymentId: named } = readProblem(status, body)
  const paymentId = named ?? answer.headers.get('service-payment-id') ?? undefined
  const options = { status, body, ...(payment && { payment }), ...(paymentId && { paymentId }) }
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
