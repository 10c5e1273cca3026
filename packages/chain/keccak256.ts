import { bytesToHex } from '@tollkeeper/sdk/protocol/bytes'
import type { Keccak256 } from '@tollkeeper/sdk/protocol/eip3009'
import { createKeccak } from 'hash-wasm'
import type { Hex } from 'viem'

const hasher = await createKeccak(256)

/** keccak256 in WebAssembly. A verification computes eight hashes, and portable JavaScript takes three times as long for each. */
export const keccak256: Keccak256 = (bytes) => {
  hasher.init()
  hasher.update(bytes)
  return hasher.digest('binary')
}

/** Returns the hash of a long hex text, such as a signed batch. */
export function hashHex(hex: Hex): Hex {
  return bytesToHex(keccak256(Buffer.from(hex.slice(2), 'hex')))
}
