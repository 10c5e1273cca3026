import { createHmac, randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { hmacSha256 } from './hmac.ts'

test.each([0, 1, 31, 32, 63, 64, 65, 200])(
  'default: returns the same bytes as createHmac for a key of %i bytes',
  (length) => {
    for (const size of [0, 1, 55, 56, 64, 300, 1_024, 1_025, 5_000]) {
      const [key, data] = [randomBytes(length), randomBytes(size)]
      expect(Buffer.from(hmacSha256(key, data))).toEqual(createHmac('sha256', key).update(data).digest())
    }
  },
)
