import type { ClientErrorOptions } from './errors.ts'
import type { GatewayReport, Presented } from './gatewayReport.ts'
import type { SignedPayment } from './signedPayment.ts'
import type { Answer } from './transport.ts'

/** Asks the client's own gateway about a payment, because a seller's statement proves nothing. */
export async function askGateway(
  fetch: typeof globalThis.fetch,
  gatewayUrl: string,
  payment: Presented,
  signal: AbortSignal,
): Promise<GatewayReport> {
  // A payment with a `header` is for a seller that doesn't use Tollkeeper, so no gateway can report on it.
  if (signal.aborted || payment.header) return 'unknown'
  try {
    const { readGatewayReport } = await import('./gatewayReport.ts')
    return await readGatewayReport(fetch, gatewayUrl, payment, signal)
  } catch {
    return 'unknown'
  }
}

/** Returns whether a response leaves the payment's outcome open, because it doesn't report that the payment was charged. */
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

/** Returns whether the paid request is still being served, so that its response will be available later. */
export function isServing({ status, headers }: Pick<Answer, 'status' | 'headers'>): boolean {
  return status === 409 && headers.get('retry-after') !== null
}

/**
 * The response to a paid request, the last payment that was signed for it and, for an error response, the gateway's report on the payment.
 */
export type Paid<A extends Answer> = {
  answer: A
  payment: SignedPayment | undefined
  report?: GatewayReport | undefined
}

/** Returns whether a response reports that its request was charged. */
export function isServed({ headers }: Answer): boolean {
  return headers.get('service-payment-id') !== null && headers.get('service-payment-status') !== 'voided'
}

/** Returns whether a refused request can be paid again, because the gateway itself reports that it doesn't charge the payment. */
export function isFree({ answer, report }: Pick<Paid<Answer>, 'answer' | 'report'>): boolean {
  if (report === 'not_charged') return true
  // `absent` alone isn't enough: the gateway may still be processing a payment that the seller hasn't refused with a 402.
  return answer.status === 402 && report === 'absent'
}

/**
 * Returns the outcome of a failed request from the gateway's report. Only `not_charged` is certain: even if the gateway hasn't accepted the payment,
 * anyone who has the payment can still present it.
 */
export function outcomeOf(report: GatewayReport): Pick<ClientErrorOptions, 'outcome' | 'isAccepted'> {
  return {
    outcome: report === 'not_charged' ? 'not_charged' : 'unknown',
    isAccepted: report === 'unknown' ? undefined : report === 'charged',
  }
}
