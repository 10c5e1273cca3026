import { type Address, type Hex, keccak256, stringToBytes } from 'viem'
import { bytesToHex, writeHex, writeUint, writeWord } from './bytes.ts'
import type { Network } from './networks.ts'
import type { SignedAuthorization } from './payload.ts'

export {
  compactSignature,
  expandSignature,
  isCanonicalSignature,
  recoverableSignature,
  splitSignature,
  zeroWord,
} from './signature.ts'

/**
 * The EIP-712 types of EIP-3009's `TransferWithAuthorization` (conformance 2.4-11), in the form of viem's `signTypedData`.
 *
 * @example
 * import { eip712Domain, networks, transferWithAuthorizationTypes } from '@tollkeeper/sdk/protocol'
 * import { privateKeyToAccount } from 'viem/accounts'
 *
 * const account = privateKeyToAccount(`0x${'11'.repeat(32)}`)
 * const signature = await account.signTypedData({
 *   domain: eip712Domain(networks.base),
 *   types: transferWithAuthorizationTypes,
 *   primaryType: 'TransferWithAuthorization',
 *   message: {
 *     from: account.address,
 *     to: `0x${'b'.repeat(40)}`,
 *     value: 47_500n,
 *     validAfter: 0n,
 *     validBefore: 1_800_093_600n,
 *     nonce: `0x${'0'.repeat(63)}1`,
 *   },
 * })
 * console.log(signature.length)
 * // 132
 */
export const transferWithAuthorizationTypes = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const

/**
 * The EIP-712 types of EIP-3009's `ReceiveWithAuthorization`, which only the recipient (`to`) may execute. Tabs are signed in this form.
 *
 * @example
 * import { receiveWithAuthorizationTypes, transferWithAuthorizationTypes } from '@tollkeeper/sdk/protocol'
 *
 * const { ReceiveWithAuthorization } = receiveWithAuthorizationTypes
 * console.log(ReceiveWithAuthorization === transferWithAuthorizationTypes.TransferWithAuthorization)
 * // true
 */
export const receiveWithAuthorizationTypes = {
  ReceiveWithAuthorization: transferWithAuthorizationTypes.TransferWithAuthorization,
} as const

/** The fields of EIP-3009's two messages, which the payer signs. */
export type Authorization = Omit<SignedAuthorization, 'signature'>

/** The EIP-712 domain of a token: its `name()`, its `version()`, its chain and its address. */
export type Eip712Domain = { name: string; version: string; chainId: number; verifyingContract: Address }

/** keccak256 of EIP-3009's type strings. They are FiatTokenV2's TRANSFER_ and RECEIVE_WITH_AUTHORIZATION_TYPEHASH. */
const typeHashes = {
  TransferWithAuthorization: typeHashOf('TransferWithAuthorization'),
  ReceiveWithAuthorization: typeHashOf('ReceiveWithAuthorization'),
}
const domainTypeHash = keccak256(
  stringToBytes('EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)'),
)

/**
 * Returns the EIP-712 domain of USDC on a network.
 *
 * @param network an entry of `networks`.
 * @param usdc the token's address. Required if the network's entry has no address (`localhost`).
 * @returns the domain, with its address in lower-case.
 * @throws {TypeError} if neither the network's entry nor `usdc` has an address.
 * @example
 * import { eip712Domain, networks } from '@tollkeeper/sdk/protocol'
 *
 * console.log(eip712Domain(networks['base-sepolia']).name)
 * // USDC
 */
export function eip712Domain(
  network: Pick<Network, 'name' | 'chainId' | 'eip712' | 'usdc'>,
  usdc?: Address,
): Eip712Domain {
  const verifyingContract = usdc ?? network.usdc
  if (!verifyingContract) throw new TypeError(`The USDC address of ${network.name} must be given`)
  return { ...network.eip712, chainId: network.chainId, verifyingContract: lower(verifyingContract) }
}

/**
 * Hashes an EIP-712 domain. The result equals the token's `DOMAIN_SEPARATOR()`.
 *
 * @param domain the domain, with its address in lower-case.
 * @returns 32 bytes.
 * @example
 * import { domainSeparator, eip712Domain, networks } from '@tollkeeper/sdk/protocol'
 *
 * console.log(domainSeparator(eip712Domain(networks.base)))
 * // 0x02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f
 */
export function domainSeparator({ name, version, chainId, verifyingContract }: Eip712Domain): Hex {
  const words = new Uint8Array(5 * 32)
  writeHex(words, 0, domainTypeHash)
  words.set(keccak256(stringToBytes(name), 'bytes'), 32)
  words.set(keccak256(stringToBytes(version), 'bytes'), 64)
  writeUint(words, 96, 32, BigInt(chainId))
  writeHex(words, 140, verifyingContract)
  return keccak256(words)
}

/**
 * A keccak256 over bytes, for callers that hash thousands of times per second: viem's portable version takes three times as long as WebAssembly. The
 * next call may overwrite the result.
 */
export type Keccak256 = (bytes: Uint8Array) => Uint8Array

export const portableKeccak256: Keccak256 = (bytes) => keccak256(bytes, 'bytes')

// Both buffers are written and hashed within one synchronous call, so one buffer of each kind is sufficient.
const structWords = new Uint8Array(7 * 32)
const digestInput = new Uint8Array(2 + 32 + 32)
digestInput[0] = 0x19
digestInput[1] = 0x01

/**
 * Hashes the message that the payer signs. Returns the EIP-712 digest as bytes.
 *
 * The result equals viem's `hashTypedData`. The message is packed by hand, which is faster: each verification hashes two messages.
 *
 * @param separator the token's domain separator.
 * @param authorization parsed values: `value` and `validAfter` below 2^64, `validBefore` below 2^256, because a tab's `validBefore` contains a hash.
 * @param keccak default: the portable version.
 */
export function hashAuthorization(
  separator: Hex,
  authorization: Authorization,
  keccak: Keccak256 = portableKeccak256,
): Uint8Array {
  const { from, to, value, validAfter, validBefore, nonce, primaryType } = authorization
  writeHex(structWords, 0, typeHashes[primaryType ?? 'TransferWithAuthorization'])
  writeHex(structWords, 44, from)
  writeHex(structWords, 76, to)
  writeUint(structWords, 96, 32, value)
  writeUint(structWords, 128, 32, validAfter)
  writeWord(structWords, 160, validBefore)
  writeHex(structWords, 192, nonce)
  writeHex(digestInput, 2, separator)
  digestInput.set(keccak(structWords), 34)
  return keccak(digestInput)
}

/**
 * Hashes the message that the payer signs. Returns the EIP-712 digest that the signature covers.
 *
 * @param separator the token's domain separator, as {@link domainSeparator} returns it.
 * @param authorization an authorization as {@link parsePayload} returns it: `value` below 2^64 base units, times below 2^40 Unix seconds.
 * @returns 32 bytes, the same as viem's `hashTypedData`.
 * @example
 * import { authorizationDigest, domainSeparator, eip712Domain, networks } from '@tollkeeper/sdk/protocol'
 *
 * const digest = authorizationDigest(domainSeparator(eip712Domain(networks.base)), {
 *   from: `0x${'a'.repeat(40)}`,
 *   to: `0x${'b'.repeat(40)}`,
 *   value: 47_500n,
 *   validAfter: 0n,
 *   validBefore: 1_800_093_600n,
 *   nonce: `0x${'0'.repeat(63)}1`,
 * })
 * console.log(digest)
 * // 0xc0a052404f5dbc1af522fc46ac4c1976657feeaf11b583b16041f9c95d6ee8cb
 */
export function authorizationDigest(separator: Hex, authorization: Authorization): Hex {
  return bytesToHex(hashAuthorization(separator, authorization))
}

function typeHashOf(name: string): Hex {
  const fields = 'address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce'
  return keccak256(stringToBytes(`${name}(${fields})`))
}

export function lower(address: Address): Address {
  return address.toLowerCase() as Address
}
