import { bytesToHex, keccak256 as portable } from 'viem'
import { expect, test } from 'vitest'
import { hashHex, keccak256 } from './keccak256.ts'

test('default: equals viem’s hash for lengths around multiples of the 136-byte block', () => {
  for (const length of [0, 1, 32, 64, 66, 135, 136, 137, 224, 272, 1_000]) {
    const bytes = crypto.getRandomValues(new Uint8Array(length))
    expect(keccak256(bytes)).toEqual(portable(bytes, 'bytes'))
    expect(hashHex(bytesToHex(bytes))).toBe(portable(bytes))
  }
})
