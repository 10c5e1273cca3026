import type { Address } from 'viem'
import { bytesToHex, writeHex, writeUint } from './bytes.ts'
import { type Keccak256, portableKeccak256 } from './eip3009.ts'
import { percentageOf } from './tier.ts'

/** The recipients of a splitter and their shares. Together with the factory, they determine the splitter's address on every network. */
export type SplitterTerms = {
  provider: Address
  platform: Address
  /** Number of the provider's shares, below 2^48. */
  providerShare: bigint
  /** Number of the platform's shares, below 2^48. */
  platformShare: bigint
}

/** The shares of a splitter, reduced to lowest terms. */
export type SplitterShares = Pick<SplitterTerms, 'providerShare' | 'platformShare'>

const maxShare = 2n ** 48n - 1n

/**
 * Returns the shares of the splitter for a price. They express the percentage of the price's tier, which is the same for all prices of the tier. If
 * the fee also has a fixed part, no percentage fits all prices, so the shares are exact for this price only.
 *
 * The fee of a single payment is rounded down. A splitter rounds only once, after it has calculated the platform's part of its whole balance. So if
 * it holds several payments, the platform still gets at most its percentage, and the provider gets up to one base unit per payment less than if each
 * payment were divided alone.
 *
 * @param price USDC base units, greater than 0.
 * @param fee the platform's part of the price, in base units.
 * @throws {RangeError} for a fee greater than the price, or a share of 2^48 or more.
 * @example
 * import { splitterShares } from '@tollkeeper/sdk/protocol'
 *
 * console.log(splitterShares(50_000n, 2_500n), splitterShares(50_001n, 2_500n))
 * // { providerShare: 19n, platformShare: 1n } { providerShare: 19n, platformShare: 1n }
 */
export function splitterShares(price: bigint, fee: bigint): SplitterShares {
  if (price <= 0n || fee < 0n || fee > price)
    throw new RangeError(`Expected a price above 0 and a fee of at most the price, got ${price} and ${fee}`)
  const basisPoints = percentageOf(price, fee)
  const [whole, part] = basisPoints === undefined ? [price, fee] : [10_000n, basisPoints]
  const unit = greatestCommonDivisor(whole, part)
  return requireShares({ providerShare: (whole - part) / unit, platformShare: part / unit })
}

/**
 * Packs the terms that differ between the splitters of one platform, in the form of `SplitterFactory`: `provider << 96 | providerShare << 48 |
 * platformShare`.
 *
 * @throws {RangeError} for a negative share, or one of 2^48 or more.
 * @example
 * import { encodeSplit } from '@tollkeeper/sdk/protocol'
 *
 * console.log(encodeSplit({ provider: `0x${'0'.repeat(39)}1`, providerShare: 9n, platformShare: 1n }).toString(16))
 * // 1000000000009000000000001
 */
export function encodeSplit({
  provider,
  providerShare,
  platformShare,
}: Pick<SplitterTerms, 'provider' | 'providerShare' | 'platformShare'>): bigint {
  requireShares({ providerShare, platformShare })
  return (BigInt(provider) << 96n) | (providerShare << 48n) | platformShare
}

/**
 * Computes the address of a splitter, whether the splitter is deployed or not. If you receive a splitter's address from others, compute it from the
 * agreed terms, and reject any other address.
 *
 * @param terms the terms and `factory`, the `SplitterFactory`, which has the same address on every network.
 * @param keccak a faster keccak256 than the portable one.
 * @returns the address in lower-case.
 * @throws {RangeError} for a negative share, or one of 2^48 or more.
 * @example
 * import { splitterAddress, splitterShares } from '@tollkeeper/sdk/protocol'
 *
 * export const payToOf = (provider: `0x${string}`, platform: `0x${string}`, factory: `0x${string}`) =>
 *   splitterAddress({ provider, platform, factory, ...splitterShares(50_000n, 2_500n) })
 */
export function splitterAddress(
  { factory, provider, platform, providerShare, platformShare }: SplitterTerms & { factory: Address },
  keccak: Keccak256 = portableKeccak256,
): Address {
  requireShares({ providerShare, platformShare })
  const code = new Uint8Array(107)
  // OpenZeppelin's Clones: creation code that returns the 45 bytes of ERC-1167 and the 52 bytes of the arguments.
  let at = writeHex(code, 0, '0x6100613d81600a3d39f3363d3d373d3d3d363d73')
  code.set(splitterImplementation(factory, keccak), at)
  at = writeHex(code, at + 20, '0x5af43d82803e903d91602b57fd5bf3')
  at = writeHex(code, at, provider)
  writeUint(code, at, 6, providerShare)
  writeUint(code, at + 6, 6, platformShare)
  writeHex(code, at + 12, platform)
  // EIP-1014, with a salt of 0.
  const create2 = new Uint8Array(1 + 20 + 32 + 32)
  create2[0] = 0xff
  writeHex(create2, 1, factory)
  create2.set(keccak(code), 53)
  return bytesToHex(keccak(create2).subarray(12))
}

/**
 * Finds the splitter of a payment that has one authorization for both parts of a price.
 *
 * @param parts the two wallets, and the part of the price for each, in base units.
 * @param factory the factory from the caller's own table, never from the other party.
 * @returns undefined if no splitter can have such shares, because they need more than 48 bits.
 * @example
 * import { splitterOf } from '@tollkeeper/sdk/protocol'
 *
 * const wallets = { payTo: `0x${'a'.repeat(40)}`, feePayTo: `0x${'b'.repeat(40)}` } as const
 * const factory = `0x${'f'.repeat(40)}` as const
 * const first = splitterOf({ ...wallets, amount: 47_500n, feeAmount: 2_500n }, factory)
 * const second = splitterOf({ ...wallets, amount: 95_000n, feeAmount: 5_000n }, factory)
 * console.log(first?.providerShare, first?.platformShare, first?.address === second?.address)
 * // 19n 1n true
 */
export function splitterOf(
  {
    payTo,
    feePayTo,
    amount,
    feeAmount,
  }: { payTo: Address; feePayTo: Address; amount: bigint; feeAmount: bigint },
  factory: Address,
  keccak?: Keccak256,
): (SplitterTerms & { address: Address }) | undefined {
  try {
    const terms = { provider: payTo, platform: feePayTo, ...splitterShares(amount + feeAmount, feeAmount) }
    return { ...terms, address: splitterAddress({ ...terms, factory }, keccak) }
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

/** Returns the address of the code that every splitter delegates to. It is the first contract that the factory creates. */
function splitterImplementation(factory: Address, keccak: Keccak256): Uint8Array {
  const sender = new Uint8Array(23)
  writeHex(sender, 0, '0xd694') // RLP: a list of an address and the nonce 1
  writeHex(sender, 2, factory)
  sender[22] = 1
  return keccak(sender).subarray(12)
}

function requireShares<Shares extends Partial<SplitterShares>>(shares: Shares): Shares {
  for (const [name, share] of Object.entries(shares)) {
    if (share < 0n || share > maxShare) throw new RangeError(`${name} must be 0 to 2^48 - 1, got ${share}`)
  }
  return shares
}

function greatestCommonDivisor(a: bigint, b: bigint): bigint {
  return b === 0n ? a : greatestCommonDivisor(b, a % b)
}
