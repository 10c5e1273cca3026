import { hash, timingSafeEqual } from 'node:crypto'

/** Compares a text with a secret, in a time that reveals nothing about either. */
export function isSameSecret(presented: string, secret: string): boolean {
  return timingSafeEqual(hash('sha256', presented, 'buffer'), hash('sha256', secret, 'buffer'))
}
