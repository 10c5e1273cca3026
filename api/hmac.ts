import { hash } from 'node:crypto'
import type { Hmac } from '#protocol/macaroon'

const blockLength = 64

/**
 * HMAC-SHA-256 (RFC 2104) as two one-shot hashes: a fifth of what `createHmac` takes for inputs this short, and a
 * macaroon needs six.
 */
export const hmacSha256: Hmac = (key, data) => {
  const short = key.length > blockLength ? hash('sha256', key, 'buffer') : key
  const inner = new Uint8Array(blockLength + data.length).fill(0x36, 0, blockLength)
  const outer = new Uint8Array(blockLength + 32).fill(0x5c, 0, blockLength)
  for (let i = 0; i < short.length; i++) {
    const byte = short[i] as number
    inner[i] = 0x36 ^ byte
    outer[i] = 0x5c ^ byte
  }
  inner.set(data, blockLength)
  outer.set(hash('sha256', inner, 'buffer'), blockLength)
  return hash('sha256', outer, 'buffer')
}
