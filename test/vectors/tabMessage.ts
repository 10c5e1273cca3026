import {
  type Address,
  concat,
  encodePacked,
  type Hex,
  hashTypedData,
  keccak256,
  numberToHex,
  sha256,
  slice,
  toHex,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

// Does not use sdk/src/protocol, because the vectors check it.

export const account = (label: string): Address => slice(sha256(toHex(`tollkeeper vector: ${label}`)), 0, 20)
export const buyerOf = (label: string) => privateKeyToAccount(keccak256(toHex(`tollkeeper vector: ${label}`)))

export const domain = {
  name: 'USD Coin',
  version: '2',
  chainId: 8453,
  verifyingContract: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
} as const
export const contract = account('tab contract')

const types = {
  ReceiveWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const

export type Line = { split: Hex; amount: bigint }

export const splitOf = (provider: string, providerShare: number, platformShare: number): Hex =>
  encodePacked(['address', 'uint48', 'uint48'], [account(provider), providerShare, platformShare])
export const mostUint40 = 2 ** 40 - 1
export const mostUint48 = 2n ** 48n - 1n

/** Returns the authorization for a state of a tab, as its payer signs it. */
export function tabMessage(state: {
  payer: Address
  platform: Address
  rewardShare: number
  sequence: number
  expiry: number
  nonce: Hex
  lines: readonly Line[]
}) {
  const { payer, platform, rewardShare, sequence, expiry, nonce, lines } = state
  const commitment = keccak256(
    concat([
      // One word: the platform (160 bits), zeros (40), the reward's share (16) and the sequence (40).
      encodePacked(['address', 'uint40', 'uint16', 'uint40'], [platform, 0, rewardShare, sequence]),
      nonce,
      encodePacked(['address', 'uint96'], [payer, BigInt(domain.chainId)]),
      ...lines.flatMap(({ split, amount }) => [split, numberToHex(amount, { size: 32 })]),
    ]),
  )
  const message = {
    from: payer,
    to: contract,
    value: lines.reduce((sum, { amount }) => sum + amount, 0n),
    validAfter: 0n,
    validBefore: BigInt(concat([slice(commitment, 0, 27), numberToHex(expiry, { size: 5 })])),
    nonce,
  }
  const typed = { domain, types, primaryType: 'ReceiveWithAuthorization', message } as const
  return { commitment, message, typed, digest: hashTypedData(typed) }
}

export const linesAsText = (lines: readonly Line[]) =>
  lines.map(({ split, amount }) => ({ split, amount: amount.toString() }))
