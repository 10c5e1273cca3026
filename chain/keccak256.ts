import { createKeccak } from 'hash-wasm'
import type { Keccak256 } from '#protocol/eip3009'

const hasher = await createKeccak(256)

/** keccak256 in WebAssembly: a verification needs eight, and portable JavaScript takes three times as long for each. */
export const keccak256: Keccak256 = (bytes) => {
  hasher.init()
  hasher.update(bytes)
  return hasher.digest('binary')
}
