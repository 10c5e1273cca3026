import { sign } from 'node:crypto'
import type { ReceiptClaims } from '#protocol/receipt'
import type { ReceiptKey } from './keys.ts'

/**
 * Signs a receipt: JWS compact (RFC 7515), ES256.
 *
 * By hand, because jose's `CompactSign` goes through WebCrypto and a thread: 138 µs instead of 45. That its own
 * verification accepts the result is tested.
 */
export function signReceipt(claims: ReceiptClaims, key: ReceiptKey): string {
  const payload = Buffer.from(JSON.stringify(claims)).toString('base64url')
  const input = `${key.protectedHeader}.${payload}`
  // RFC 7518 section 3.4: r and s next to each other, not DER.
  const signature = sign('sha256', Buffer.from(input), { key: key.privateKey, dsaEncoding: 'ieee-p1363' })
  return `${input}.${signature.toString('base64url')}`
}
