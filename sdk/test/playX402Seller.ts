import { networks } from '../src/protocol/networks.ts'
import { parsePayload, type SignedAuthorization } from '../src/protocol/payload.ts'
import { decodePaymentHeader, encodePaymentHeader, parsePaymentHeader } from '../src/protocol/x402.ts'
import { answerJson, type Handler } from './playProvider.ts'
import { serve } from './serve.ts'

// A seller of the x402 standard that doesn't use Tollkeeper. test/e2e/otherSellers.test.ts and compat/x402Sellers.test.ts show that the standard's
// own middleware accepts our client's signatures.

/** The seller's wallet. */
export const payTo = `0x${'d'.repeat(40)}` as const
const { usdc, eip712, caip2 } = networks.base

/** Returns an offer of 0.05 USDC on base. */
export function exactOffer(version: 1 | 2, changes: object = {}): Record<string, unknown> {
  const price =
    version === 1 ? { network: 'base', maxAmountRequired: '50000' } : { network: caip2, amount: '50000' }
  return { scheme: 'exact', asset: usdc, payTo, maxTimeoutSeconds: 60, extra: eip712, ...price, ...changes }
}

/** Responds with a 402 in the form of the given version. */
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

/** Returns the header with which a seller reports on a payment. */
export function settled(version: 1 | 2, transaction: string): Record<string, string> {
  const report = encodePaymentHeader({ success: true, transaction, network: 'base' })
  return { [version === 1 ? 'x-payment-response' : 'payment-response']: report }
}

/** Starts a seller that requests payment, and lets the test respond to paid requests. */
export async function playX402Seller(
  paid: Handler,
  { version = 2, offers }: { version?: 1 | 2; offers?: object[] } = {},
) {
  /** The headers of each request that it received. */
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

/** Returns the authorization in a request's headers. */
export function presentedBy(header: string | undefined): SignedAuthorization {
  const payment = parsePaymentHeader(header ?? '')
  if (payment.scheme !== 'exact') throw new Error('Expected a payment with scheme exact')
  return parsePayload(payment.payload)
}

/** Returns the decoded content of a header. */
export const contentsOf = (header: string | undefined) => decodePaymentHeader(header ?? '')
