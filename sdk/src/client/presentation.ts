import { parseUsdc } from '../protocol/amount.ts'
import { encodeAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { networkByName } from '../protocol/networks.ts'
import { parsePayload } from '../protocol/payload.ts'
import { encodePaymentHeader, readTabResponse } from '../protocol/x402.ts'
import { NetworkError, RequestTimeoutError, readProblem } from './errors.ts'
import type { Asset, ExactOffer } from './exactOffers.ts'
import type { Asked } from './offers.ts'
import { isServing } from './outcome.ts'
import type { PaymentHeader, SignedPayment, SignedTabPayment } from './signedPayment.ts'
import type { Outcome } from './tabState.ts'
import type { Tabs } from './tabs.ts'
import { type Answer, type Deadline, pause, startDeadline } from './transport.ts'

/** A request that is paid for, and how long it may take. */
export type Attempt<A extends Answer> = {
  asked: Asked
  /** Sends it once more, with its payment. */
  send: (header: PaymentHeader, deadline: Deadline) => Promise<A>
  deadline: Deadline
  /** Whether the request has an `Authorization` of its own, which the payment must leave alone. */
  hasAuthorization?: boolean
  /** How long it waits after the first answer that it is under way. Default: until the deadline. */
  pendingTimeoutMs?: number
  /** Reads the offers that a seller makes in other forms than x402's, as over MCP. */
  readOffers?: (asset: Asset) => ExactOffer[]
}

/** Codes of status 503 with which nothing was accepted. */
const busyRefusals: ReadonlySet<unknown> = new Set(['overloaded', 'provider_limit_exceeded', 'token_paused'])

/** How often a paid request is sent again after the connection or a server failed, always with the same authorization. */
const resends = 2
const resendDelayMs = 250
/** A server that asks for a longer wait is given up: whether it charged is then asked at the gateway. */
const longestWaitMs = 60_000

/** Presents a signed payment until it is answered. */
export type Present = ReturnType<typeof createPresenter>

/** Presents signed payments, and tells their tabs the outcomes. */
export function createPresenter({ tabs, log }: { tabs: Tabs | undefined; log: (message: string) => void }) {
  /**
   * Presents a signed payment. If the connection breaks, a server fails, or settlement or answer are under way, it presents the same
   * payment again, which can be charged only once.
   */
  async function present<A extends Answer>(
    { send, deadline, pendingTimeoutMs, hasAuthorization }: Attempt<A>,
    payment: SignedPayment,
  ): Promise<A> {
    try {
      const header = headerOf(payment, hasAuthorization)
      const answer = await sendUntilAnswered(
        (within) => send(header, within),
        { ...deadline, payment },
        { pendingTimeoutMs, log },
      )
      if (payment.tab) concludeOnTab(payment, answer)
      return answer
    } catch (error) {
      if (payment.tab) tabs?.conclude(payment.tab, 'unknown')
      throw error
    }
  }

  function concludeOnTab({ tab, amount }: SignedTabPayment, answer: Answer): void {
    tabs?.conclude(tab, outcomeOf(answer, amount))
    const response = readTabResponse(answer.headers.get('payment-response'))
    if (response) tabs?.acknowledge(response, tab)
  }

  return present
}

/**
 * Sends a request with its payment again and again, until the seller has given its last word, or an outage lasts longer than
 * the request may.
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
        log(`answer to the paid request: ${answer.status}`)
        const waitMs = retryAfterMs(answer)
        // Nothing comes of asking earlier than the server says.
        if (waitMs > longestWaitMs) return answer
        if (isPending(answer) || isServing(answer)) within = limitWait(within, pendingTimeoutMs)
        else if (!isOutage(answer) || attempt++ === resends) return answer
        else outage = answer
        await pause(waitMs, within)
      } catch (error) {
        // It says more than that there was no time for another try.
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

function headerOf(payment: SignedPayment, hasAuthorization = false): PaymentHeader {
  if (payment.header) return payment.header
  const { macaroon, tab } = payment
  const [both, another] = payment.payloads
  if (!tab && (!hasAuthorization || another !== undefined))
    return { name: 'authorization', value: encodeAuthorizationHeader(payment) }
  const accepted = {
    scheme: tab ? 'tab' : 'exact',
    network: networkByName(payment.network).caip2,
    extra: { macaroon },
  }
  const payload = tab ?? exactPayloadOf(both ?? '')
  return { name: 'payment-signature', value: encodePaymentHeader({ x402Version: 2, accepted, payload }) }
}

/** One authorization in the form of x402's scheme `exact`. */
function exactPayloadOf(payload: string): object {
  const { signature, from, to, value, validAfter, validBefore, nonce } = parsePayload(payload)
  const times = { validAfter: validAfter.toString(), validBefore: validBefore.toString() }
  return { signature, authorization: { from, to, value: value.toString(), ...times, nonce } }
}

/** How much was charged by the provider's word; one that lies has the tab refused, and gets nothing by it. */
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

/** Whether the gateway has the payment but serves nothing before it is mined (`SETTLE_BEFORE_SERVE_USDC`). */
function isPending({ status, body }: Answer): boolean {
  return status === 503 && readProblem(status, body).code === 'settlement_pending'
}

/** Whether a server before the handler failed, which says nothing of the payment. */
function isOutage({ status, headers, body }: Answer): boolean {
  if (![502, 503, 504].includes(status) || headers.get('service-payment-id') !== null) return false
  return !busyRefusals.has(readProblem(status, body).code)
}

/** The deadline, bounded by this time unless it has a limit already. */
function limitWait(deadline: Deadline, timeoutMs: number | undefined): Deadline {
  if (timeoutMs === undefined || deadline.timeoutMs !== undefined) return deadline
  return { ...deadline, ...startDeadline(timeoutMs, deadline.signal, deadline.maxResponseBytes) }
}

/** When to ask again: seconds or an HTTP date (RFC 9110 section 10.2.3), by the server's own clock if its answer has the time. */
function retryAfterMs({ headers }: Answer): number {
  const text = headers.get('retry-after')?.trim() ?? ''
  const date = /^[A-Z][a-z]{2}/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(date)) return /^\d+$/.test(text) ? Math.max(Number(text) * 1000, resendDelayMs) : 1000
  const sentAt = Date.parse(headers.get('date') ?? '')
  return Math.max(date - (Number.isNaN(sentAt) ? Date.now() : sentAt), resendDelayMs)
}
