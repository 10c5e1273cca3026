import { ProtocolError } from '#protocol/errors'
import { decodeReceipt, type ReceiptClaims } from '#protocol/receipt'
import { type VerifiedReceipt, verifyReceipt } from '#sdk/audit/verifyReceipt'
import type { Jwks, Payment } from './answers.ts'
import { type Gateway, GatewayError } from './gateway.ts'

/** What a text that somebody holds for a receipt is worth. */
export type ReceiptCheck =
  | { kind: 'unreadable' }
  /** It reads as a receipt, and this gateway did not sign it. */
  | { kind: 'forged'; claims: ReceiptClaims; reason: string }
  | { kind: 'genuine'; claims: VerifiedReceipt; payment: Payment | undefined; mismatches: string[] }

/**
 * Verifies a receipt here, in the browser, with the gateway's public keys, and asks where its payment stands.
 *
 * @throws {GatewayError} where the gateway can't be asked
 */
export async function checkReceipt(text: string, gateway: Gateway): Promise<ReceiptCheck> {
  const jws = text.replace(/\s+/g, '')
  const claims = decodeReceipt(jws)
  if (claims === undefined || jws.split('.').length !== 3) return { kind: 'unreadable' }
  let verified: VerifiedReceipt
  try {
    verified = await verifyReceipt(jws, await gateway.get<Jwks>('.well-known/jwks.json'))
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    return { kind: 'forged', claims, reason: error.message }
  }
  const payment = await gateway
    .get<Payment>(`payments/${encodeURIComponent(verified.paymentId)}`)
    .catch((error: unknown) => {
      if (error instanceof GatewayError && error.status === 404) return undefined
      throw error
    })
  return { kind: 'genuine', claims: verified, payment, mismatches: payment ? compare(verified, payment) : [] }
}

/** Where a receipt and what the gateway knows of its payment differ: never, unless one of the two is wrong. */
function compare(claims: ReceiptClaims, payment: Payment): string[] {
  const [provider, platform] = claims.authorizations
  const facts: [string, string, string][] = [
    ['total', claims.totalUsdc, payment.totalUsdc],
    ['network', claims.network, payment.network],
    ['token', claims.asset, payment.asset],
    ['payer', claims.payer, payment.payer],
    ['recipient', provider.to, payment.provider.to],
    ['amount', provider.value, payment.provider.value],
    ['nonce', provider.nonce, payment.provider.nonce],
    ['fee recipient', platform.to, payment.platform.to],
    ['fee', platform.value, payment.platform.value],
    ['fee nonce', platform.nonce, payment.platform.nonce],
  ]
  return facts.flatMap(([name, claimed, known]) => (claimed === known ? [] : [name]))
}
