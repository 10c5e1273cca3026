import type { Address, Hex } from 'viem'
import { formatUsdc, maxAmount } from './amount.ts'
import { bytesToHex, encodeUtf8, writeHex, writeUint, writeWord } from './bytes.ts'
import { type Keccak256, portableKeccak256 } from './eip3009.ts'
import { addressPattern, fieldsOf, wordPattern } from './fields.ts'
import { parseSignature, type SignedAuthorization } from './payload.ts'
import type { SplitterTerms } from './splitter.ts'
import { type FeeSchedule, tabPercentage } from './tier.ts'

/*
 * A tab is the running sum of what a buyer has bought through one gateway, from all its providers. With each request, the buyer signs the new sum
 * under the same nonce, and the newest state settles in one transfer (docs/tabs.md).
 */

/**
 * Maximum number of lines of a tab. A buyer who buys from more providers opens another tab.
 *
 * @example
 * import { maxTabLines } from '@tollkeeper/sdk/protocol'
 *
 * console.log(maxTabLines)
 * // 128
 */
export const maxTabLines = 128

/**
 * Maximum number of a tab's lines on which nothing was bought yet, because their first requests are in flight. The gateway rejects a tab's state with
 * more such lines, because each line costs gas when the tab settles.
 */
export const maxIdleTabLines = 8

/**
 * Returns the minimum amount for settling a tab. It grows with the number of lines, because each further line costs about a fifth of the gas of a tab
 * with one line.
 *
 * @param minimum the minimum for one line in USDC base units, which is the network's minimum price.
 */
export function leastTabAmount(minimum: bigint, lines: number): bigint {
  return minimum + (minimum * BigInt(Math.max(0, lines - 1))) / 5n
}

/** On chain, a line's amount has 48 bits, and `sequence` and `expiry` have 40 bits. */
const maxLineAmount = 2n ** 48n - 1n
const maxUint40 = 2 ** 40 - 1
/** Maximum reward, in basis points of the platform's part: 100%. */
const maxRewardShare = 10_000

/** The amount that a buyer owes one provider. `split` contains the recipients and their shares, in the packed form of `encodeSplit`. */
export type TabLine = {
  split: bigint
  /** USDC base units, < 2^48. */
  amount: bigint
}

/** The terms that all tabs of a gateway on a network share. */
export type TabTerms = {
  /** The gateway's public URL. The nonce is derived from it, so no other gateway can claim the tab. */
  issuer: string
  /** The chain on which the tab settles. */
  chainId: number
  /** Address of the TabSettlement contract. Only this contract may execute the signed message. */
  contract: Address
  /** Recipient of the platform's part. */
  platform: Address
  /** The reward for settling, in basis points of the platform's part. */
  rewardShare: number
}

/** The state of a tab after one request. */
export type TabState = {
  /** `tab_` and 32 hex digits, chosen at random by the buyer's client. */
  tabId: string
  payer: Address
  /** The number of the request, from 1. Each state belongs to one request. The state with the highest number is the newest. */
  sequence: number
  /** Expiry in Unix seconds. The contract settles only before this time. */
  expiry: number
  lines: readonly TabLine[]
}

const tabIdPattern = /^tab_[0-9a-f]{32}$/

/**
 * Derives the nonce of a tab: keccak256 of UTF-8 `x402-tab:{issuer}:{tabId}`. No other tab has the same nonce.
 *
 * @param issuer the gateway's public URL.
 * @param tabId `tab_` and 32 hex digits.
 * @example
 * import { tabNonce } from '@tollkeeper/sdk/protocol'
 *
 * console.log(tabNonce('https://gateway.example', `tab_${'0'.repeat(32)}`).length)
 * // 66
 */
export function tabNonce(issuer: string, tabId: string, keccak: Keccak256 = portableKeccak256): Hex {
  return bytesToHex(keccak(encodeUtf8(`x402-tab:${issuer}:${tabId}`)))
}

/**
 * Returns the message that the buyer signs for a state of a tab: EIP-3009's `ReceiveWithAuthorization` for all lines together.
 *
 * The upper 216 bits of `validBefore` come from the hash of platform, reward, number, nonce, payer, chain and lines. The lower 40 bits are the
 * expiry. For USDC, `validBefore` is a time in the distant future. Only the contract may execute the message. The contract recomputes the hash and
 * enforces the expiry.
 *
 * @returns the message without a signature. `value` is in USDC base units.
 * @throws {RangeError} for more lines or larger numbers than the contract accepts.
 * @example
 * import { encodeSplit, tabAuthorization } from '@tollkeeper/sdk/protocol'
 *
 * const address = (digit: string) => `0x${digit.repeat(40)}` as const
 * const split = encodeSplit({ provider: address('a'), providerShare: 9n, platformShare: 1n })
 * const { value, validBefore } = tabAuthorization(
 *   {
 *     issuer: 'https://gateway.example',
 *     chainId: 8453,
 *     contract: address('c'),
 *     platform: address('b'),
 *     rewardShare: 1_000,
 *   },
 *   {
 *     tabId: `tab_${'0'.repeat(32)}`,
 *     payer: address('d'),
 *     sequence: 1,
 *     expiry: 1_800_093_600,
 *     lines: [{ split, amount: 1_000n }],
 *   },
 * )
 * console.log(value, validBefore % 2n ** 40n)
 * // 1000n 1800093600n
 */
export function tabAuthorization(
  terms: TabTerms,
  state: TabState,
  keccak: Keccak256 = portableKeccak256,
): Omit<SignedAuthorization, 'signature'> & { primaryType: 'ReceiveWithAuthorization' } {
  return tabMessage(terms, { ...state, nonce: tabNonce(terms.issuer, state.tabId, keccak) }, keccak)
}

/** A state of a tab, identified by its nonce instead of the gateway and the tab's id. */
export type TabStateOfNonce = Omit<TabState, 'tabId'> & { nonce: Hex }

/**
 * Returns the message of {@link tabAuthorization} from a tab's nonce, for callers that don't know the tab's id and gateway.
 *
 * @returns the message without a signature. `value` is in USDC base units.
 * @throws {RangeError} for more lines or larger numbers than the contract accepts.
 */
export function tabMessage(
  terms: Omit<TabTerms, 'issuer'>,
  state: TabStateOfNonce,
  keccak: Keccak256 = portableKeccak256,
): ReturnType<typeof tabAuthorization> {
  return {
    primaryType: 'ReceiveWithAuthorization',
    from: state.payer,
    to: terms.contract,
    value: state.lines.reduce((sum, { amount }) => sum + amount, 0n),
    validAfter: 0n,
    validBefore: ((tabCommitment(terms, state, keccak) >> 40n) << 40n) | BigInt(state.expiry),
    nonce: state.nonce,
  }
}

/**
 * Derives the digest of a tab's state. It covers the terms and all lines, and the buyer signed its upper 216 bits. Anyone can compute it from
 * TabSettlement's event `TabsSettled`.
 *
 * @throws {RangeError} for more lines or larger numbers than the contract accepts.
 */
export function tabStateDigest(
  terms: Omit<TabTerms, 'issuer' | 'contract'>,
  state: Omit<TabStateOfNonce, 'expiry'>,
  keccak: Keccak256 = portableKeccak256,
): Hex {
  return toWord(tabCommitment(terms, { ...state, expiry: 0 }, keccak))
}

/**
 * Returns the keccak256 of these words: platform << 96 | rewardShare << 40 | sequence, nonce, payer << 96 | chainId, and each line's split and
 * amount. The nonce, the payer and the chain are part of the hash, so that a hash collision can't be used against another tab.
 */
function tabCommitment(
  { chainId, platform, rewardShare }: Omit<TabTerms, 'issuer' | 'contract'>,
  { nonce, payer, sequence, expiry, lines }: TabStateOfNonce,
  keccak: Keccak256,
): bigint {
  if (lines.length === 0 || lines.length > maxTabLines)
    throw new RangeError(`A tab has 1 to ${maxTabLines} lines, got ${lines.length}`)
  requireInteger('rewardShare', rewardShare, maxRewardShare)
  requireInteger('sequence', sequence, maxUint40)
  requireInteger('expiry', expiry, maxUint40)
  requireInteger('chainId', chainId, Number.MAX_SAFE_INTEGER)
  const words = new Uint8Array(96 + 64 * lines.length)
  writeHex(words, 0, platform)
  writeUint(words, 25, 2, BigInt(rewardShare))
  writeUint(words, 27, 5, BigInt(sequence))
  writeHex(words, 32, nonce)
  writeHex(words, 64, payer)
  writeUint(words, 88, 8, BigInt(chainId))
  lines.forEach(({ split, amount }, index) => {
    requireLineAmount(amount)
    writeWord(words, 96 + 64 * index, split)
    writeUint(words, 128 + 64 * index + 24, 8, amount)
  })
  return BigInt(bytesToHex(keccak(words)))
}

/**
 * Finds the split of a price on a tab. The split has the percentage of the price's tier, so that all prices of a provider within a tier share a line.
 *
 * @param wallets the provider's wallet, the platform's wallet, and the platform's fee schedule.
 * @param price USDC base units, greater than 0.
 * @returns undefined if the fee has a fixed part (prices of 1 USDC or more). Such a price is paid as a single payment.
 * @example
 * import { tabSplit } from '@tollkeeper/sdk/protocol'
 *
 * const wallets = { provider: `0x${'a'.repeat(40)}`, platform: `0x${'b'.repeat(40)}` } as const
 * console.log(tabSplit(wallets, 7n)?.providerShare, tabSplit(wallets, 50_000n)?.providerShare, tabSplit(wallets, 1_000_000n))
 * // 9n 19n undefined
 */
export function tabSplit(
  { provider, platform }: Pick<SplitterTerms, 'provider' | 'platform'>,
  price: bigint,
  schedule: FeeSchedule = 'tiered',
): SplitterTerms | undefined {
  const basisPoints = tabPercentage(price, schedule)
  if (basisPoints === undefined) return undefined
  return { provider, platform, providerShare: 10_000n / basisPoints - 1n, platformShare: 1n }
}

/**
 * Returns the platform's part of a line. It is rounded down once per line, and the rest belongs to the provider.
 *
 * @param split the split in the packed form of `encodeSplit`.
 * @param amount USDC base units.
 */
export function platformPart(split: bigint, amount: bigint): bigint {
  const [providerShare, platformShare] = [(split >> 48n) & maxLineAmount, split & maxLineAmount]
  const shares = providerShare + platformShare
  return shares === 0n ? 0n : (amount * platformShare) / shares
}

/** Returns the wallet that receives a line's amount. */
export function providerOfSplit(split: bigint): Address {
  return `0x${(split >> 96n).toString(16).padStart(40, '0')}`
}

/** The payment of a request on a tab, from `PAYMENT-SIGNATURE`. Its contents are unverified. */
export type TabPayment = {
  tabId: string
  payer: Address
  sequence: number
  expiry: number
  /** Index of the line to which this request adds its price. */
  line: number
  /** Number of lines that the gateway has confirmed. `splits` leaves out the splits of these lines. */
  known: number
  /** The splits of all further lines, starting with index `known`. */
  splits: readonly bigint[]
  /** The signed amount of each line, in USDC base units. */
  amounts: readonly bigint[]
  signature: Hex
}

/** A {@link TabPayment} as JSON. It is the `payload` of an x402 v2 payment with scheme `tab`, and the field `tab` in the gateway's `POST /verify`. */
export type TabPayload = {
  tab: string
  payer: Address
  sequence: number
  expiry: number
  line: number
  known: number
  /** 32 bytes each. */
  splits: readonly Hex[]
  /** 6 bytes per line, concatenated. */
  amounts: Hex
  signature: Hex
}

/**
 * Encodes a payment on a tab.
 *
 * @throws {RangeError} for an amount of 2^48 or more.
 * @example
 * import { encodeTabPayload } from '@tollkeeper/sdk/protocol'
 *
 * const { amounts } = encodeTabPayload({
 *   tabId: `tab_${'0'.repeat(32)}`,
 *   payer: `0x${'a'.repeat(40)}`,
 *   sequence: 2,
 *   expiry: 1_800_093_600,
 *   line: 1,
 *   known: 2,
 *   splits: [],
 *   amounts: [50_000n, 7n],
 *   signature: `0x${'1'.repeat(130)}`,
 * })
 * console.log(amounts)
 * // 0x00000000c350000000000007
 */
export function encodeTabPayload(payment: TabPayment): TabPayload {
  const { tabId: tab, payer, sequence, expiry, line, known, splits, amounts, signature } = payment
  const bytes = new Uint8Array(6 * amounts.length)
  amounts.forEach((amount, index) => {
    requireLineAmount(amount)
    writeUint(bytes, 6 * index, 6, amount)
  })
  return {
    tab,
    payer,
    sequence,
    expiry,
    line,
    known,
    splits: splits.map(toWord),
    amounts: bytesToHex(bytes),
    signature,
  }
}

/** Returns a split as 32 bytes of hex. */
export function toWord(split: bigint): Hex {
  return `0x${split.toString(16).padStart(64, '0')}`
}

const amountsPattern = new RegExp(`^0x(?:[0-9a-f]{12}){1,${maxTabLines}}$`)
const { invalid, object, text, integer } = fieldsOf('invalid_payload', 'Tab')

/**
 * Reads the payment of a request on a tab. Hex must be lower-case, except in the signature. White space is not removed. The signature is not
 * verified.
 *
 * @throws {ProtocolError} `invalid_payload`, with `details.field`.
 * @example
 * import { parseTabPayload } from '@tollkeeper/sdk/protocol'
 *
 * const { amounts } = parseTabPayload({
 *   tab: `tab_${'0'.repeat(32)}`,
 *   payer: `0x${'a'.repeat(40)}`,
 *   sequence: 1,
 *   expiry: 1_800_093_600,
 *   line: 0,
 *   known: 0,
 *   splits: [`0x${'b'.repeat(40)}000000000013000000000001`],
 *   amounts: '0x0000000003e8',
 *   signature: `0x${'1'.repeat(130)}`,
 * })
 * console.log(amounts)
 * // [ 1000n ]
 */
export function parseTabPayload(json: unknown): TabPayment {
  const payload = object(json, 'payload')
  const tabId = text(payload, 'tab', tabIdPattern)
  const amounts = readAmounts(payload)
  const known = integer(payload.known, 'known', [0, amounts.length])
  const { splits } = payload
  if (!Array.isArray(splits) || splits.length !== amounts.length - known)
    throw invalid('splits', 'one split for each line, starting with index `known`')
  const total = amounts.reduce((sum, amount) => sum + amount, 0n)
  if (total > maxAmount) throw invalid('amounts', `at most ${formatUsdc(maxAmount)} USDC together`)
  return {
    tabId,
    payer: text(payload, 'payer', addressPattern) as Address,
    sequence: integer(payload.sequence, 'sequence', [1, maxUint40]),
    expiry: integer(payload.expiry, 'expiry', [1, maxUint40]),
    line: integer(payload.line, 'line', [0, amounts.length - 1]),
    known,
    splits: splits.map((split, index) => {
      const name = `splits[${index}]`
      return BigInt(text({ [name]: split }, name, wordPattern))
    }),
    amounts,
    signature: parseSignature(text(payload, 'signature')),
  }
}

function readAmounts(payload: Record<string, unknown>): bigint[] {
  const hex = text(payload, 'amounts', amountsPattern)
  return Array.from({ length: (hex.length - 2) / 12 }, (_, index) =>
    BigInt(`0x${hex.slice(2 + 12 * index, 14 + 12 * index)}`),
  )
}

/** @throws {RangeError} for an amount that doesn't fit into the contract's 48 bits. */
export function requireLineAmount(amount: bigint): void {
  if (amount < 0n || amount > maxLineAmount)
    throw new RangeError(`A line's amount must be 0 to 2^48 - 1, got ${amount}`)
}

function requireInteger(name: string, value: number, most: number): void {
  if (!Number.isInteger(value) || value < 0 || value > most)
    throw new RangeError(`${name} must be an integer from 0 to ${most}, got ${value}`)
}
