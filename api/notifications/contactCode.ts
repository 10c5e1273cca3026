import { timingSafeEqual } from 'node:crypto'
import type { MacaroonSecret } from '@tollkeeper/sdk/protocol/macaroon'
import { hmacSha256 } from '../http/hmac.ts'

const lifetimeSeconds = 24 * 60 * 60
const utf8 = new TextEncoder()

export type Contact = { providerId: string; address: string }

/**
 * Issues a code which proves that its bearer reads a contact's mail: an expiry, and the gateway's HMAC over expiry, provider and address.
 * Like a challenge, it isn't stored.
 *
 * @param now Unix milliseconds
 */
export function issueContactCode(contact: Contact, secrets: readonly MacaroonSecret[], now: number): string {
  const [secret] = secrets
  if (secret === undefined) throw new TypeError('A gateway needs a macaroon secret')
  const expiry = Math.floor(now / 1000) + lifetimeSeconds
  return `${expiry.toString(36)}-${sign(contact, expiry, secret).toString('base64url')}`
}

export function isContactCode(
  code: string,
  contact: Contact,
  secrets: readonly MacaroonSecret[],
  now: number,
): boolean {
  const [, written = '', mac = ''] = /^([0-9a-z]{1,8})-([A-Za-z0-9_-]{22})$/.exec(code) ?? []
  const expiry = Number.parseInt(written, 36)
  if (!(expiry > now / 1000)) return false
  const presented = Buffer.from(mac, 'base64url')
  return secrets.some((secret) => timingSafeEqual(sign(contact, expiry, secret), presented))
}

/**
 * Computes the code's HMAC. The same secret signs macaroons, but the signed text of a macaroon begins with byte 1, and that of a code with a letter.
 * So a code's HMAC never equals a macaroon's.
 */
function sign({ providerId, address }: Contact, expiry: number, { key }: MacaroonSecret): Buffer {
  const text = `contact|${providerId}|${expiry}|${address}`
  return Buffer.from(hmacSha256(key, utf8.encode(text))).subarray(0, 16)
}
