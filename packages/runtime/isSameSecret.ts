import { hash, timingSafeEqual } from 'node:crypto'

/** Compares a text with a secret. The duration reveals nothing about the text or the secret. */
export function isSameSecret(presented: string, secret: string): boolean {
  return timingSafeEqual(hash('sha256', presented, 'buffer'), hash('sha256', secret, 'buffer'))
}
