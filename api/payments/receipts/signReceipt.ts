import { sign } from 'node:crypto'
import type { ReceiptClaims } from '@tollkeeper/sdk/protocol/receipt'
import type { ReceiptKey } from './keys.ts'

/**
 * Signs a receipt: JWS compact (RFC 7515), ES256.
 *
 * It doesn't use jose's `CompactSign`, which goes through WebCrypto and a thread and takes 138 µs instead of 25. A test shows that jose's
 * verification accepts the result.
 */
export function signReceipt(claims: ReceiptClaims, key: ReceiptKey): string {
  return signInput(`${key.protectedHeader}.${toBase64url(claims)}`, key)
}

/** Signs another kind of JWS with the same key, under the given header. */
export function signJws(
  header: { alg: 'ES256'; typ?: string; kid: string },
  payload: object,
  key: ReceiptKey,
): string {
  return signInput(`${toBase64url(header)}.${toBase64url(payload)}`, key)
}

/** @param input the two parts of a JWS that are signed, joined by a dot. */
function signInput(input: string, key: ReceiptKey): string {
  // If Node is asked for ieee-p1363 instead of DER, signing takes 46 µs instead of 24.
  const signature = toP1363(sign('sha256', Buffer.from(input), key.privateKey))
  return `${input}.${signature.toString('base64url')}`
}

function toBase64url(json: object): string {
  return Buffer.from(JSON.stringify(json)).toString('base64url')
}

/** Converts DER's SEQUENCE of two INTEGERs to RFC 7518 section 3.4: r and s of 32 bytes each, concatenated. */
export function toP1363(der: Uint8Array): Buffer {
  const signature = Buffer.alloc(64)
  let at = 2 // P-256's SEQUENCE has at most 72 bytes, so its length takes one byte
  for (const end of [32, 64]) {
    const length = der[at + 1] as number
    const start = at + 2
    // DER adds a zero byte before a number that would otherwise be read as negative, and omits the number's own leading zeros.
    const leading = Math.max(0, length - 32)
    signature.set(der.subarray(start + leading, start + length), end - length + leading)
    at = start + length
  }
  return signature
}
