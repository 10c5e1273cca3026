import { type VerifiedReceipt, verifyReceipt } from '@tollkeeper/sdk/audit/verifyReceipt'
import { ProtocolError } from '@tollkeeper/sdk/protocol/errors'
import { decodeReceipt, type ReceiptClaims } from '@tollkeeper/sdk/protocol/receipt'
import type { Jwks, Payment } from './answers.ts'
import { type Gateway, GatewayError } from './gateway.ts'

/** The result of checking a text that may be a receipt. */
export type ReceiptCheck =
  | { kind: 'unreadable' }
  /** A receipt that this gateway did not sign. */
  | { kind: 'forged'; claims: ReceiptClaims; reason: string }
  | { kind: 'genuine'; claims: VerifiedReceipt; payment: Payment | undefined; mismatches: string[] }
  /** The receipt could not be checked; it may be genuine. */
  | { kind: 'unavailable'; reason: string }

/** Verifies a receipt in the browser, with the gateway's public keys, and requests the state of its payment. */
export async function checkReceipt(text: string, gateway: Pick<Gateway, 'get'>): Promise<ReceiptCheck> {
  if (globalThis.crypto?.subtle === undefined) {
    return {
      kind: 'unavailable',
      reason: 'Browsers verify signatures only on pages served over https. Open this page over https.',
    }
  }
  const jws = text.replace(/\s+/g, '')
  const claims = decodeReceipt(jws)
  if (claims === undefined || jws.split('.').length !== 3) return { kind: 'unreadable' }
  try {
    const verified = await verifyReceipt(jws, await gateway.get<Jwks>('.well-known/jwks.json'))
    const payment = await findPayment(verified.paymentId, gateway)
    return {
      kind: 'genuine',
      claims: verified,
      payment,
      mismatches: payment ? compare(verified, payment) : [],
    }
  } catch (error) {
    if (error instanceof ProtocolError) return { kind: 'forged', claims, reason: error.message }
    if (error instanceof GatewayError) return { kind: 'unavailable', reason: error.message }
    throw error
  }
}

async function findPayment(paymentId: string, gateway: Pick<Gateway, 'get'>): Promise<Payment | undefined> {
  try {
    return await gateway.get<Payment>(`payments/${encodeURIComponent(paymentId)}`)
  } catch (error) {
    if (error instanceof GatewayError && error.status === 404) return undefined
    throw error
  }
}

/** Whether two receipts have the same claims. Their signatures differ, because the gateway signs on each request. */
export function isSameStatement(one: string, other: string): boolean {
  const [first, second] = [one, other].map((jws) => JSON.stringify({ ...decodeReceipt(jws), iat: 0 }))
  return first === second
}

/** Returns the claims in which a receipt differs from the gateway's record of its payment; normally none. */
function compare(claims: ReceiptClaims, payment: Payment): string[] {
  const [provider, platform] = claims.authorizations
  // Skip the amounts for a tab: its payment is the sum of its requests, so the receipt of one request has other amounts.
  const amounts: [string, string, string][] = claims.tab
    ? []
    : [
        ['total', claims.totalUsdc, payment.totalUsdc],
        ['amount', provider.value, payment.provider.value],
      ]
  const facts: [string, string | undefined, string | undefined][] = [
    ...amounts,
    ['network', claims.network, payment.network],
    ['token', claims.asset, payment.asset],
    ['payer', claims.payer, payment.payer],
    ['recipient', provider.to, payment.provider.to],
    ['nonce', provider.nonce, payment.provider.nonce],
    ['tab', claims.tab?.id, claims.tab && payment.tab?.tabId],
    ['fee recipient', platform?.to, payment.platform?.to],
    ['fee', platform?.value, payment.platform?.value],
    ['fee nonce', platform?.nonce, payment.platform?.nonce],
  ]
  return facts.flatMap(([name, claimed, known]) => (claimed === known ? [] : [name]))
}
