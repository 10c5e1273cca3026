import { networks } from '../src/protocol/networks.ts'
import { parsePayload, type SignedAuthorization } from '../src/protocol/payload.ts'
import { decodePaymentHeader, encodePaymentHeader, parsePaymentHeader } from '../src/protocol/x402.ts'
import { answerJson, type Handler } from './playProvider.ts'
import { serve } from './serve.ts'

// A seller of the x402 standard that doesn't use Tollkeeper. test/e2e/otherSellers.test.ts and compat/x402Sellers.test.ts show that
// the standard's own middleware accepts what our client signs.

/** The seller's wallet. */
export const payTo = `0x${'d'.repeat(40)}` as const
const { usdc, eip712, caip2 } = networks.base

/** An offer of 0.05 USDC on base. */
export function exactOffer(version: 1 | 2, changes: object = {}): Record<string, unknown> {
  const price =
    version === 1 ? { network: 'base', maxAmountRequired: '50000' } : { network: caip2, amount: '50000' }
  return { scheme: 'exact', asset: usdc, payTo, maxTimeoutSeconds: 60, extra: eip712, ...price, ...changes }
}

/** Answers with a 402 in the form of one version. */
export function demand(
  response: Parameters<Handler>[1],
  version: 1 | 2,
  offers: object[] = [exactOffer(version)],
  error = 'Payment required',
): void {
  const required = { x402Version: version, error, accepts: offers }
  if (version === 1) answerJson(response, 402, required)
  else answerJson(response, 402, {}, { 'payment-required': encodePaymentHeader(required) })
}

/** The header in which a seller reports on a payment. */
export function settled(version: 1 | 2, transaction: string): Record<string, string> {
  const report = encodePaymentHeader({ success: true, transaction, network: 'base' })
  return { [version === 1 ? 'x-payment-response' : 'payment-response']: report }
}

/** A seller that asks for payment, and leaves the paid requests to the test. */
export async function playX402Seller(
  paid: Handler,
  { version = 2, offers }: { version?: 1 | 2; offers?: object[] } = {},
) {
  /** The headers that it was shown. */
  const shown: string[] = []
  let requests = 0
  const url = await serve((request, response) => {
    requests++
    const header = request.headers[version === 1 ? 'x-payment' : 'payment-signature']
    if (typeof header !== 'string') return demand(response, version, offers)
    shown.push(header)
    paid(request, response, shown.length)
  })
  return { url: `${url}/tides`, shown, requests: () => requests, signatures: () => new Set(shown).size }
}

/** The authorization that a header presents. */
export function presentedBy(header: string | undefined): SignedAuthorization {
  const payment = parsePaymentHeader(header ?? '')
  if (payment.scheme !== 'exact') throw new Error('Expected a payment by scheme exact')
  return parsePayload(payment.payload)
}

/** Everything that a header holds. */
export const contentsOf = (header: string | undefined) => decodePaymentHeader(header ?? '')
