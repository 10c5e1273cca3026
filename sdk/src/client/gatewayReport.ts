import { parseUsdc } from '../protocol/amount.ts'
import { pathOfPayment, readProblem } from './errors.ts'
import type { SignedPayment } from './signedPayment.ts'
import { type Answer, sendToGateway, startDeadline, urlOf } from './transport.ts'

/**
 * What a gateway reports about a payment:
 *
 * - `charged`: the gateway has accepted the payment.
 * - `not_charged`: the gateway has accepted the payment but doesn't charge it, because it was voided or failed permanently.
 * - `absent`: the gateway hasn't accepted the payment.
 * - `unknown`: the gateway did not respond.
 */
export type GatewayReport = 'charged' | 'not_charged' | 'absent' | 'unknown'

/** The fields of a payment that identify it to a gateway. */
export type Presented = Parameters<typeof pathOfPayment>[0] & { header?: SignedPayment['header'] }

/** Timeout in ms for the gateway's response. */
const timeoutMs = 3_000

/** Asks a gateway about a payment. Only errors need this code, so the client loads it after an error. */
export async function readGatewayReport(
  fetch: typeof globalThis.fetch,
  gatewayUrl: string,
  payment: Presented,
  signal: AbortSignal,
): Promise<GatewayReport> {
  const deadline = startDeadline(timeoutMs, signal)
  try {
    const headers: Record<string, string> = { accept: 'application/json' }
    // Only the buyer may see what was bought on a tab. The signature proves that the request comes from the buyer.
    if (payment.tab) headers['tab-signature'] = payment.tab.signature
    const init = { headers }
    return parseReport(await sendToGateway(fetch, urlOf(gatewayUrl, pathOfPayment(payment)), init, deadline))
  } finally {
    deadline.signal.end?.()
  }
}

function parseReport({ status, body }: Answer): GatewayReport {
  const { code } = readProblem(status, body)
  if (code === 'unknown_payment' || code === 'unknown_tab') return 'absent'
  if (status !== 200) return 'unknown'
  const { payment_status: stands, chargedUsdc } = (body ?? {}) as Record<string, unknown>
  if (typeof chargedUsdc === 'string') return parseUsdc(chargedUsdc) === 0n ? 'not_charged' : 'charged'
  if (typeof stands !== 'string') return 'unknown'
  return stands === 'voided' || stands === 'failed' ? 'not_charged' : 'charged'
}
