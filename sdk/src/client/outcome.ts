import { parseUsdc } from '../protocol/amount.ts'
import { type ClientErrorOptions, pathOfPayment, readProblem } from './errors.ts'
import type { SignedPayment } from './signedPayment.ts'
import { type Answer, sendToGateway, startDeadline, urlOf } from './transport.ts'

/**
 * A gateway's word on a payment.
 *
 * - `charged`: it has accepted it.
 * - `not_charged`: it has accepted it but charges nothing, because it was voided or failed for good.
 * - `absent`: it hasn't accepted it.
 * - `unknown`: it gave no answer.
 */
export type GatewayWord = 'charged' | 'not_charged' | 'absent' | 'unknown'

type Presented = Parameters<typeof pathOfPayment>[0] & { header?: SignedPayment['header'] }

/** How long a gateway has for an answer. */
const timeoutMs = 3_000

/** Asks the client's own gateway about a payment, since a seller's word proves nothing. */
export async function askGateway(
  fetch: typeof globalThis.fetch,
  gatewayUrl: string,
  payment: Presented,
  signal: AbortSignal,
): Promise<GatewayWord> {
  // No gateway knows a payment to another seller.
  if (signal.aborted || payment.header) return 'unknown'
  const deadline = startDeadline(timeoutMs, signal)
  try {
    const headers: Record<string, string> = { accept: 'application/json' }
    // What a tab bought is for its buyer alone, who shows that the state is theirs.
    if (payment.tab) headers['tab-signature'] = payment.tab.signature
    const init = { headers }
    return readWord(await sendToGateway(fetch, urlOf(gatewayUrl, pathOfPayment(payment)), init, deadline))
  } catch {
    return 'unknown'
  } finally {
    deadline.signal.end?.()
  }
}

function readWord({ status, body }: Answer): GatewayWord {
  const { code } = readProblem(status, body)
  if (code === 'unknown_payment' || code === 'unknown_tab') return 'absent'
  if (status !== 200) return 'unknown'
  const { payment_status: stands, chargedUsdc } = (body ?? {}) as Record<string, unknown>
  if (typeof chargedUsdc === 'string') return parseUsdc(chargedUsdc) === 0n ? 'not_charged' : 'charged'
  if (typeof stands !== 'string') return 'unknown'
  return stands === 'voided' || stands === 'failed' ? 'not_charged' : 'charged'
}

/** Whether an answer leaves the payment's outcome open: nobody who had it says that it was charged. */
export function isUnclear({ status, headers }: Answer): boolean {
  if (headers.get('service-payment-status') === 'voided') return true
  if (headers.get('service-payment-id') !== null) return false
  return (
    status === 402 ||
    status === 408 ||
    status === 425 ||
    status === 429 ||
    status >= 500 ||
    isServing({ status, headers })
  )
}

/** Whether the same payment is being served, so that its answer can be had later. */
export function isServing({ status, headers }: Pick<Answer, 'status' | 'headers'>): boolean {
  return status === 409 && headers.get('retry-after') !== null
}

/** The answer to a paid request, its last signed payment, and if the answer is an error, the gateway's word on that. */
export type Paid<A extends Answer> = {
  answer: A
  payment: SignedPayment | undefined
  word?: GatewayWord | undefined
}

/** Whether an answer was charged, and so is what was paid for. */
export function isServed({ headers }: Answer): boolean {
  return headers.get('service-payment-id') !== null && headers.get('service-payment-status') !== 'voided'
}

/** Whether a refused request may be paid anew, because the gateway itself says that it charges nothing for it. */
export function isFree({ answer, word }: Pick<Paid<Answer>, 'answer' | 'word'>): boolean {
  if (word === 'not_charged') return true
  // A payment that is on its way isn't refused.
  return answer.status === 402 && word === 'absent'
}

/** The outcome of a failed request by the gateway's word. What it hasn't accepted may still be presented to it. */
export function outcomeOf(word: GatewayWord): Pick<ClientErrorOptions, 'outcome' | 'isAccepted'> {
  return {
    outcome: word === 'not_charged' ? 'not_charged' : 'unknown',
    isAccepted: word === 'unknown' ? undefined : word === 'charged',
  }
}
