import type { PresentedPayment } from '@tollkeeper/sdk/middleware/presentedPayment'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { parsePayload } from '@tollkeeper/sdk/protocol/payload'
import { checkWindow } from './checkPayment.ts'
import { challengedTerms, type TermsOptions } from './paymentTerms.ts'

export type PlausibleOptions = Pick<TermsOptions, 'networks' | 'macaroonSecrets' | 'macaroonNotBefore'>

/** The endpoint that a payment is presented for. */
type Endpoint = { providerId: string; endpointId: string }

/**
 * Seconds for which a payment still passes after its macaroon has expired. The middleware keeps an answer for this long, and a buyer that
 * lost the answer presents the same payment again.
 */
const answerSeconds = 600

/**
 * Checks a payment as far as that costs almost nothing: without database, chain and payer signatures. If it fails here, `POST /verify`
 * would refuse it too, so the rest of the request need not be read.
 *
 * @param seconds Unix time.
 * @returns the id of the payment's challenge; null: the payment has no macaroon (x402 v1); undefined: it is refused.
 */
export function findPlausible(
  options: PlausibleOptions,
  endpoint: Endpoint,
  payment: PresentedPayment,
  seconds: number,
): string | null | undefined {
  if (payment.kind !== 'payment' && payment.kind !== 'tab') return undefined
  const { macaroon } = payment
  try {
    const paid = payment.kind === 'tab' ? { payer: payment.tab.payer, amount: null } : readPaid(payment)
    if (macaroon !== undefined) {
      const { terms } = challengedTerms(options, { ...endpoint, macaroon }, paid, seconds - answerSeconds)
      return terms.requestId
    }
    // A payment on a tab always has a macaroon.
    if (payment.kind === 'tab') return undefined
    const { payloads, x402 } = payment
    checkWindow('payloads[0]', parsePayload(payloads[0]), seconds)
    const isServed = x402 === undefined || options.networks.has(networkByName(x402.network).chainId)
    return isServed ? null : undefined
  } catch {
    return undefined
  }
}

/** @throws {ProtocolError} if a payload is malformed. */
function readPaid({ payloads: [first, second] }: { payloads: [string, string?] }) {
  const { from, value } = parsePayload(first)
  return { payer: from, amount: value + (second === undefined ? 0n : parsePayload(second).value) }
}
