import { hash } from 'node:crypto'
import type { Hmac } from '@tollkeeper/sdk/protocol/macaroon'

const blockLength = 64
/** Scratch memory for a macaroon's fields. Allocating memory for each message would cost a third of the time, and create garbage. */
const scratch = Buffer.alloc(blockLength + 1_024)
/** Prefixes of the scratch memory by length. */
const beginnings: Buffer[] = []
const outer = Buffer.alloc(blockLength + 32)

/**
 * Computes HMAC-SHA-256 (RFC 2104) as two one-shot hashes. For inputs this short, that takes a tenth of `createHmac`'s time; one macaroon needs six
 * HMACs. The intermediate hashes are strings, because Node allocates separate memory for a buffer, which takes three times as long.
 */
export const hmacSha256: Hmac = (key, data) => {
  const short = key.length > blockLength ? hash('sha256', key, 'buffer') : key
  const inner = ofLength(blockLength + data.length)
  inner.fill(0x36, short.length, blockLength)
  outer.fill(0x5c, short.length, blockLength)
  for (let i = 0; i < short.length; i++) {
    const byte = short[i] as number
    inner[i] = 0x36 ^ byte
    outer[i] = 0x5c ^ byte
  }
  inner.set(data, blockLength)
  outer.write(hash('sha256', inner, 'binary'), blockLength, 'binary')
  return Buffer.from(hash('sha256', outer, 'binary'), 'binary')
}

function ofLength(length: number): Buffer {
  if (length > scratch.length) return Buffer.alloc(length)
  beginnings[length] ??= scratch.subarray(0, length)
  return beginnings[length]
}
