import { type Abi, type Address, encodeDeployData, type Hex, keccak256, stringToHex } from 'viem'
import { create2Address } from './create2.ts'
import {
  fiatTokenAbi,
  fiatTokenProxyAbi,
  implementationCode,
  proxyCode,
  signatureCheckerCode,
} from './generated/fiatToken.ts'

/** Storage slots in which Circle's proxy keeps its implementation and admin. They are older than EIP-1967. */
export const proxySlots: { implementation: Hex; admin: Hex } = {
  implementation: keccak256(stringToHex('org.zeppelinos.proxy.implementation')),
  admin: keccak256(stringToHex('org.zeppelinos.proxy.admin')),
}

type FiatToken = {
  /** Address of the proxy, which is the token's address. */
  address: Address
  implementation: Address
  abi: Abi
  /** Creation codes in the order in which they must be deployed. */
  creationCodes: readonly [checker: Hex, implementation: Hex, proxy: Hex]
}

/**
 * Returns the real USDC: FiatTokenV2_2 with its library linked, behind FiatTokenProxy, all deployed with
 * CREATE2.
 */
export function fiatToken(): FiatToken {
  const linked = implementationCode.replaceAll(
    '__$715109b5d747ea58b675c6ea3f0dba8c60$__',
    create2Address(signatureCheckerCode).slice(2).toLowerCase(),
  ) as Hex
  const implementation = create2Address(linked)
  const proxy = encodeDeployData({ abi: fiatTokenProxyAbi, bytecode: proxyCode, args: [implementation] })
  return {
    address: create2Address(proxy),
    implementation,
    abi: fiatTokenAbi,
    creationCodes: [signatureCheckerCode, linked, proxy],
  }
}
