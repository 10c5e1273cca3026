import { createRemoteJWKSet, customFetch } from 'jose'
import type { Address } from 'viem'
import { verifyReceipt } from '../audit/verifyReceipt.ts'
import { encodeAuthorizationHeader, mockAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { challengeMediaType, parseChallenge } from '../protocol/challenge.ts'
import { type NetworkName, networkByName } from '../protocol/networks.ts'
import { parsePayload } from '../protocol/payload.ts'
import type { ReceiptClaims } from '../protocol/receipt.ts'
import { checkChallenge } from './checkChallenge.ts'
import { ChallengeRefusedError, NetworkError, readProblem } from './errors.ts'
import { hostOf, type LimitOptions, readLimits, signWithin, warnWithoutLimit } from './limits.ts'
import { type Payer, type PayerWallet, signerOf } from './payer.ts'
import { priceOf, type SignedPayment, signPayment } from './payment.ts'
import { type Answer, type Deadline, pause, startDeadline, waitFor } from './transport.ts'

/** How a buyer pays, and how much at most: options of `createClient` and `wrapFetch`. */
export type PaymentOptions = LimitOptions & {
  /** Public URL of the gateway whose challenges are paid. */
  gatewayUrl: string
  /** Key of the paying wallet, 0x and 64 hex digits. Never logged, never sent. */
  walletPrivateKey?: string | undefined
  /** Instead of a key: an account of viem, a wallet client that has one, or whatever signs typed data. */
  account?: Payer | PayerWallet
  /** Network to pay on. Challenges for another one are refused. */
  network: NetworkName
  /** Verbose log of the payment flow through `console.debug`. Default false. */
  debug?: boolean
  /** USDC's address, where the network's table has none (`localhost`) or a test chain plays a network. */
  usdcAddress?: Address
  /**
   * `one`: a payment is one authorization of the whole price, to the splitter of the provider's part and the platform's.
   * `two`: each part has its own. Default: what the provider's middleware asks for, else `two`.
   */
  signatures?: 'one' | 'two'
  /** Answer challenges with `x402 mock:mock` and sign nothing. For providers in mock mode only. Default false. */
  mockPayments?: boolean
  /**
   * Called with the receipt of each payment, as it came, before the answer is returned: to keep it for an audit
   * (`openReceiptFile` of `@tollkeeper/sdk/files`). What it throws is the answer's `receiptError`, because the answer was
   * paid for, and isn't lost by it.
   */
  onReceipt?: (paid: PaidReceipt) => void | Promise<void>
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

/** Sends a request once more, with this `Authorization`. */
type SendPaid<A extends Answer> = (authorization: string, deadline: Deadline) => Promise<A>

/** How often a paid request is sent again after the connection failed, always with the same authorization. */
const resends = 2
const resendDelayMs = 250

/**
 * What follows on a 402, the same for every kind of client: check, sign within the limits, present, keep the receipt.
 *
 * @throws {TypeError} for a key, account, URL, host or missing `usdcAddress` that can't work.
 * @throws {ProtocolError} `unknown_network`; `invalid_field` for a limit that isn't a USDC amount.
 */
export function createPaymentFlow(options: PaymentOptions, fetch: typeof globalThis.fetch) {
  const { gatewayUrl, mockPayments = false } = options
  const network = networkByName(options.network)
  const usdc = (options.usdcAddress ?? network.usdc)?.toLowerCase() as Address | undefined
  const payer = signerOf(options)
  const limits = readLimits(options)
  const log = options.debug ? (message: string) => console.debug(`[tollkeeper] ${message}`) : () => {}
  if (!URL.canParse(gatewayUrl)) throw new TypeError(`gatewayUrl must be a URL, got ${gatewayUrl}`)
  if (!usdc && !mockPayments) throw new TypeError(`usdcAddress must be given for the network ${network.name}`)
  if (!mockPayments) warnWithoutLimit(options)

  // The keys are fetched once, and again for a key id that isn't among them.
  const receiptKeys = createRemoteJWKSet(new URL(`${gatewayUrl.replace(/\/+$/, '')}/.well-known/jwks.json`), {
    [customFetch]: fetch,
  })

  /** Pays what a 402 asks for. @returns the answer to the paid request. */
  async function pay<A extends Answer>(
    url: string,
    answer: Answer,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<{ answer: A; payment: SignedPayment | undefined }> {
    log('402: payment required')
    if (mockPayments) {
      log('presenting mock credentials')
      return { answer: await send(mockAuthorizationHeader, deadline), payment: undefined }
    }
    const payment = await waitFor(sign(url, answer, deadline), deadline)
    return { answer: await present(payment, send, deadline, pendingTimeoutMs), payment }
  }

  async function sign(url: string, answer: Answer, deadline: Deadline): Promise<SignedPayment> {
    if (!usdc) throw new TypeError('Only a client in mock mode can do without a USDC address')
    const challenge = readChallenge(answer, gatewayUrl)
    checkChallenge(challenge, { url, answeredBy: answer.url, gatewayUrl, network, usdc })
    const [{ payTo, description }] = challenge.accepts
    const { requestId } = challenge
    const amount = priceOf(challenge)
    const proposed = { url, host: hostOf(url), amount, network: network.name, payTo, description, requestId }
    const payment = await signWithin(limits, proposed, deadline, () =>
      signPayment(challenge, {
        ...{ payer, network, usdc, now: Date.now() / 1000, signal: deadline.signal },
        signatures: options.signatures ?? challenge.signatures ?? 'two',
      }),
    )
    log(`signed ${amount} base units for ${requestId} as ${payer.address}`)
    return payment
  }

  /**
   * Presents a signed payment. When the connection breaks or the settlement is pending, presents the same payment again,
   * which can be charged only once.
   *
   * @param pendingTimeoutMs after the first answer that it is pending. Default: only the deadline ends it.
   */
  async function present<A extends Answer>(
    payment: SignedPayment,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<A> {
    const authorization = encodeAuthorizationHeader(payment)
    let within: Deadline = { ...deadline, payment }
    for (let attempt = 0; ; ) {
      try {
        const answer = await send(authorization, within)
        log(`answer to the paid request: ${answer.status}`)
        if (!isPending(answer)) return answer
        within = limitWait(within, pendingTimeoutMs)
        await pause(retryAfterMs(answer), within)
      } catch (error) {
        if (!(error instanceof NetworkError) || attempt === resends) throw error
        log('connection failed, presenting the same payment again')
        await pause(resendDelayMs * 2 ** attempt++, within)
      }
    }
  }

  /** Reads an answer's receipt, and hands it to `onReceipt`. */
  async function takeReceipt(
    { url, headers }: Answer,
    signed: SignedPayment | undefined,
    deadline: Deadline,
  ): Promise<{ receipt?: string; claims?: ReceiptClaims | undefined; receiptError?: unknown }> {
    const receipt = headers.get('service-receipt')
    if (!receipt) return {}
    const claims = await readReceipt(receipt, signed, deadline)
    try {
      if (signed) await options.onReceipt?.({ receipt, paymentId: claims?.paymentId, url })
      return { receipt, claims }
    } catch (receiptError) {
      log('onReceipt failed')
      return { receipt, claims, receiptError }
    }
  }

  /** The claims of a receipt that the gateway signed for the payment that was sent; undefined for any other receipt. */
  async function readReceipt(
    receipt: string,
    signed: SignedPayment | undefined,
    deadline: Deadline,
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

  return { address: payer.address, mockPayments, log, receiptKeys, pay, present, takeReceipt }
}

export function withAuthorization(init: RequestInit, value: string): RequestInit {
  const headers = new Headers(init.headers)
  headers.set('authorization', value)
  return { ...init, headers }
}

/** Asks for SPEC.md's body beside whatever else is accepted. */
export function acceptChallenge(headers: Headers): void {
  headers.set('accept', `${headers.get('accept') ?? '*/*'}, ${challengeMediaType}`)
}

/**
 * A challenge that names no issuer gets the nonces of this client's own gateway, so that leaving the field out allows
 * nothing: one challenge is still charged once, and another gateway's nonces would be others.
 */
export function readChallenge(answer: Answer, gatewayUrl: string) {
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

/** The same deadline where it has a time limit already. */
function limitWait(deadline: Deadline, timeoutMs: number | undefined): Deadline {
  if (timeoutMs === undefined || deadline.timeoutMs !== undefined) return deadline
  return { ...deadline, ...startDeadline(timeoutMs, deadline.signal, deadline.maxResponseBytes) }
}

function retryAfterMs({ headers }: Answer): number {
  const seconds = Number(headers.get('retry-after') ?? 1)
  return seconds >= 0 && seconds <= 60 ? Math.max(seconds * 1000, resendDelayMs) : 1000
}
