import { parseUsdc } from '../protocol/amount.ts'
import { encodeAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { networkByName } from '../protocol/networks.ts'
import { parsePayload } from '../protocol/payload.ts'
import { encodePaymentHeader, readTabResponse } from '../protocol/x402.ts'
import { NetworkError, RequestTimeoutError, readProblem } from './errors.ts'
import type { Asset, ExactOffer } from './exactOffers.ts'
import type { OwnLimit } from './limits.ts'
import type { Asked } from './offers.ts'
import { isServing } from './outcome.ts'
import type { PaymentHeader, SignedPayment, SignedTabPayment } from './signedPayment.ts'
import type { Outcome } from './tabState.ts'
import type { Tabs } from './tabs.ts'
import { type Answer, type Deadline, pause, startDeadline } from './transport.ts'

/** A request that is being paid for, and its deadline. */
export type Attempt<A extends Answer> = {
  asked: Asked
  /** Sends the request again, with its payment. */
  send: (header: PaymentHeader, deadline: Deadline) => Promise<A>
  deadline: Deadline
  /** Whether the request already has an `Authorization` header, which the payment must not replace. */
  hasAuthorization?: boolean
  /** Maximum time in ms to wait after the first response that reports the payment as being in progress. Default: until the deadline. */
  pendingTimeoutMs?: number
  /** The maximum price of this call, in addition to the client's limits. */
  own?: OwnLimit | undefined
  /** Whether the caller, not the client, reads the response's body. The body may then still break off after the client has returned the response. */
  isReadLater?: boolean
  /** Reads offers in other forms than x402's, for example from MCP. */
  readOffers?: (asset: Asset) => ExactOffer[]
}

/** Error codes of 503 responses which guarantee that the payment was not accepted. */
const busyRefusals: ReadonlySet<unknown> = new Set([
  'decision_unavailable',
  'overloaded',
  'provider_limit_exceeded',
  'sales_stopped',
  'token_paused',
])

/**
 * Maximum number of times that the client sends a paid request again after the connection or a server failed, always with the same authorization.
 */
const resends = 2
const resendDelayMs = 250
/**
 * Maximum time in ms to wait before the next attempt. If a server requests a longer wait, the client asks the gateway whether the payment was
 * charged.
 */
const longestWaitMs = 60_000

/** Presents a signed payment until a final response arrives. */
export type Present = ReturnType<typeof createPresenter>

/** Creates a function that presents signed payments, and updates the tabs with the outcomes. */
export function createPresenter({
  tabs,
  passes,
  log,
}: {
  tabs: Tabs | undefined
  /** Keeps the passes that payments bought. */
  passes?: { keep: (asked: Asked, answer: Answer) => Promise<void> }
  log: (message: string) => void
}) {
  /**
   * Presents a signed payment. If the connection breaks, a server fails, or the payment is still being settled or served, presents the same payment
   * again. The payment can be charged only once.
   */
  async function present<A extends Answer>(
    { asked, send, deadline, pendingTimeoutMs, hasAuthorization }: Attempt<A>,
    payment: SignedPayment,
  ): Promise<A> {
    try {
      const header = headerOf(payment, hasAuthorization)
      const answer = await sendUntilAnswered(
        (within) => send(header, within),
        { ...deadline, payment },
        { pendingTimeoutMs, log },
      )
      if (payment.tab) finalizeOnTab(payment, answer)
      await passes?.keep(asked, answer)
      return answer
    } catch (error) {
      if (payment.tab) tabs?.finalize(payment.tab, 'unknown')
      throw error
    }
  }

  function finalizeOnTab({ tab, amount }: SignedTabPayment, answer: Answer): void {
    tabs?.finalize(tab, outcomeOf(answer, amount))
    const response = readTabResponse(answer.headers.get('payment-response'))
    if (response) tabs?.acknowledge(response, tab)
  }

  return present
}

/**
 * Repeats a request with its payment until the seller has given a final response, or until the request's deadline passes during an outage.
 */
export async function sendUntilAnswered<A extends Answer>(
  send: (deadline: Deadline) => Promise<A>,
  deadline: Deadline,
  { pendingTimeoutMs, log }: { pendingTimeoutMs: number | undefined; log: (message: string) => void },
): Promise<A> {
  let within = deadline
  let outage: A | undefined
  try {
    for (let attempt = 0; ; ) {
      try {
        const answer = await send(within)
        log(`response to the paid request: ${answer.status}`)
        const waitMs = retryAfterMs(answer)
        // Another attempt before the time that the server requested would fail.
        if (waitMs > longestWaitMs) return answer
        if (isPending(answer) || isServing(answer)) within = limitWait(within, pendingTimeoutMs)
        else if (!isOutage(answer) || attempt++ === resends) return answer
        else outage = answer
        await pause(waitMs, within)
      } catch (error) {
        // Return the last response instead of throwing a timeout, because the response shows the cause.
        if (outage && error instanceof RequestTimeoutError) return outage
        if (!(error instanceof NetworkError) || attempt === resends) throw error
        log('connection failed, presenting the same payment again')
        await pause(resendDelayMs * 2 ** attempt++, within)
      }
    }
  } finally {
    if (within !== deadline) within.signal.end?.()
  }
}

export function withPayment(init: RequestInit, { name, value }: PaymentHeader): RequestInit {
  const headers = new Headers(init.headers)
  headers.set(name, value)
  return { ...init, headers }
}

/**
 * Returns the header of a payment. One signature goes into `PAYMENT-SIGNATURE`, as in x402 v2, so that the caller can use `Authorization`. Two
 * signatures go into `Authorization: x402 …` (conformance 4.3), because x402 has no form for them.
 */
function headerOf(payment: SignedPayment, hasAuthorization = false): PaymentHeader {
  if (payment.header) return payment.header
  const { macaroon, tab } = payment
  const [both, another] = payment.payloads
  if (!tab && another !== undefined) {
    if (hasAuthorization) {
      throw new TypeError(
        'A payment with two signatures is sent in the Authorization header, which this request already uses: repeat it without that header',
      )
    }
    return { name: 'authorization', value: encodeAuthorizationHeader(payment) }
  }
  const accepted = {
    scheme: tab ? 'tab' : 'exact',
    network: networkByName(payment.network).caip2,
    extra: { macaroon },
  }
  const payload = tab ?? exactPayloadOf(both ?? '')
  return { name: 'payment-signature', value: encodePaymentHeader({ x402Version: 2, accepted, payload }) }
}

/** Returns one authorization in the form of x402's scheme `exact`. */
function exactPayloadOf(payload: string): object {
  const { signature, from, to, value, validAfter, validBefore, nonce } = parsePayload(payload)
  const times = { validAfter: validAfter.toString(), validBefore: validBefore.toString() }
  return { signature, authorization: { from, to, value: value.toString(), ...times, nonce } }
}

/** Returns the charged amount that the provider reports. A provider gains nothing by reporting too little: the tab's next state then covers less than
 * the gateway has charged, so the gateway rejects that state. */
function outcomeOf({ status, headers, body }: Answer, price: bigint): Outcome {
  if (headers.get('service-payment-status') === 'voided') return { charged: 0n }
  const charged = headers.get('service-charged')
  if (charged !== null) return { charged: readCharged(charged, price) }
  if (headers.get('service-payment-id') !== null) return { charged: price }
  const isProblem = /^application\/problem\+json\b/i.test(headers.get('content-type') ?? '')
  const isRefused =
    status === 402 ||
    (isProblem && [400, 413, 422, 429].includes(status)) ||
    (status === 503 && busyRefusals.has(readProblem(status, body).code))
  return isRefused ? { charged: 0n } : 'unknown'
}

function readCharged(text: string, price: bigint): bigint {
  try {
    return parseUsdc(text)
  } catch {
    return price
  }
}

/** Returns whether the gateway has the payment, but the provider serves only after the payment is mined (`SETTLE_BEFORE_SERVE_USDC`). */
function isPending({ status, body }: Answer): boolean {
  return status === 503 && readProblem(status, body).code === 'settlement_pending'
}

/** Returns whether a server in front of the handler failed. Such a response doesn't tell whether the payment was charged. */
function isOutage({ status, headers, body }: Answer): boolean {
  if (![502, 503, 504].includes(status) || headers.get('service-payment-id') !== null) return false
  return !busyRefusals.has(readProblem(status, body).code)
}

/** Returns a deadline with this time limit or, if the given deadline already has a time limit, the given deadline. */
function limitWait(deadline: Deadline, timeoutMs: number | undefined): Deadline {
  if (timeoutMs === undefined || deadline.timeoutMs !== undefined) return deadline
  return { ...deadline, ...startDeadline(timeoutMs, deadline.signal, deadline.maxResponseBytes) }
}

/**
 * Returns the time in ms until the next attempt, from seconds or an HTTP date (RFC 9110 section 10.2.3). Compares a date with the server's own clock
 * if the response has a `Date`.
 */
function retryAfterMs({ headers }: Answer): number {
  const text = headers.get('retry-after')?.trim() ?? ''
  const date = /^[A-Z][a-z]{2}/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(date)) return /^\d+$/.test(text) ? Math.max(Number(text) * 1000, resendDelayMs) : 1000
  const sentAt = Date.parse(headers.get('date') ?? '')
  return Math.max(date - (Number.isNaN(sentAt) ? Date.now() : sentAt), resendDelayMs)
}
