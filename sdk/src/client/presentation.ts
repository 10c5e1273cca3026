import { parseUsdc } from '../protocol/amount.ts'
import { encodeAuthorizationHeader } from '../protocol/authorizationHeader.ts'
import { networkByName } from '../protocol/networks.ts'
import { encodePaymentHeader, readTabResponse } from '../protocol/x402.ts'
import { NetworkError, readProblem } from './errors.ts'
import type { SignedPayment, SignedTabPayment } from './signedPayment.ts'
import type { Outcome } from './tabState.ts'
import type { Tabs } from './tabs.ts'
import { type Answer, type Deadline, pause, startDeadline } from './transport.ts'

/** The header that carries a payment. */
export type PaymentHeader = { name: 'authorization' | 'payment-signature'; value: string }

/** Sends a request once more, with its payment. */
export type SendPaid<A extends Answer> = (header: PaymentHeader, deadline: Deadline) => Promise<A>

/** Codes of status 503 by which nothing was accepted. */
const busyRefusals: ReadonlySet<unknown> = new Set(['overloaded', 'provider_limit_exceeded', 'token_paused'])

/** How often a paid request is sent again after the connection failed, always with the same authorization. */
const resends = 2
const resendDelayMs = 250

/** Presents signed payments, and tells their tabs what became of them. */
export function createPresenter({ tabs, log }: { tabs: Tabs | undefined; log: (message: string) => void }) {
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
    try {
      const answer = await presentAgain(payment, send, deadline, pendingTimeoutMs)
      if (payment.tab) concludeOnTab(payment, answer)
      return answer
    } catch (error) {
      if (payment.tab) tabs?.conclude(payment.tab, 'unknown')
      throw error
    }
  }

  async function presentAgain<A extends Answer>(
    payment: SignedPayment,
    send: SendPaid<A>,
    deadline: Deadline,
    pendingTimeoutMs?: number,
  ): Promise<A> {
    const header = headerOf(payment)
    let within: Deadline = { ...deadline, payment }
    for (let attempt = 0; ; ) {
      try {
        const answer = await send(header, within)
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

  function concludeOnTab({ tab, amount }: SignedTabPayment, answer: Answer): void {
    tabs?.conclude(tab, outcomeOf(answer, amount))
    const response = readTabResponse(answer.headers.get('payment-response'))
    if (response?.id === tab.tab) tabs?.acknowledge(response, tab.line)
    const { code } = answer.status < 400 ? {} : readProblem(answer.status, answer.body)
    if (code === 'tab_limit_exceeded') return
    if (isTabRefusal(code)) tabs?.leave(tab.tab, code === 'tab_closed')
  }

  return present
}

/** Whether a refusal is of the tab, and not of what is put on it. */
export function isTabRefusal(code: string | undefined): boolean {
  return code === 'unknown_tab' || code?.startsWith('tab_') === true
}

export function withPayment(init: RequestInit, { name, value }: PaymentHeader): RequestInit {
  const headers = new Headers(init.headers)
  headers.set(name, value)
  return { ...init, headers }
}

function headerOf(payment: SignedPayment): PaymentHeader {
  if (!payment.tab) return { name: 'authorization', value: encodeAuthorizationHeader(payment) }
  const { macaroon, tab } = payment
  const accepted = { scheme: 'tab', network: networkByName(payment.network).caip2, extra: { macaroon } }
  return { name: 'payment-signature', value: encodePaymentHeader({ x402Version: 2, accepted, payload: tab }) }
}

/** What an answer says of what was charged, by the provider's word: who lies has a tab refused, and gets nothing by it. */
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
