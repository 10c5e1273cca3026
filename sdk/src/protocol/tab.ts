import type { Address, Hex } from 'viem'
import { formatUsdc, maxAmount } from './amount.ts'
import { bytesToHex, encodeUtf8, writeHex, writeUint, writeWord } from './bytes.ts'
import { type Keccak256, portableKeccak256 } from './eip3009.ts'
import { addressPattern, fieldsOf, wordPattern } from './fields.ts'
import { parseSignature, type SignedAuthorization } from './payload.ts'
import type { SplitterTerms } from './splitter.ts'
import { type FeeSchedule, tabPercentage } from './tier.ts'

/*
 * A tab is the sum of what a buyer has bought so far through one gateway from all its providers. With each request the buyer signs it
 * anew, under one nonce, and the newest state settles in one transfer (docs/tabs.md).
 */

/**
 * Most lines of a tab: a buyer of more providers opens another one.
 *
 * @example
 * import { maxTabLines } from '@tollkeeper/sdk/protocol'
 *
 * console.log(maxTabLines)
 * // 128
 */
export const maxTabLines = 128

/**
 * Maximum number of a tab's lines on which nothing was bought: those of requests in flight. The gateway rejects a state with more,
 * because each line costs gas when the tab settles.
 */
export const maxIdleTabLines = 8

/**
 * Returns the least amount with which a tab settles. It grows with the number of lines, because each line costs about a fifth of the gas
 * of a tab with one line.
 *
 * @param minimum USDC base units: the least for one line, which is the network's minimum price.
 */
export function leastTabAmount(minimum: bigint, lines: number): bigint {
  return minimum + (minimum * BigInt(Math.max(0, lines - 1))) / 5n
}

/** A line's amount has 48 bits on chain, `sequence` and `expiry` 40. */
const maxLineAmount = 2n ** 48n - 1n
const maxUint40 = 2 ** 40 - 1
/** Basis points: all of the platform's part. */
const maxRewardShare = 10_000

/** A buyer's debt to one provider: `split` says who gets it in which shares, as `encodeSplit` packs them. */
export type TabLine = {
  split: bigint
  /** USDC base units, < 2^48. */
  amount: bigint
}

/** The terms that all tabs of a gateway on a network share. */
export type TabTerms = {
  /** The gateway's public URL: it is in the nonce, so no other gateway can claim the tab. */
  issuer: string
  /** The chain that the tab settles on. */
  chainId: number
  /** The TabSettlement contract, which alone may execute the signed message. */
  contract: Address
  /** Recipient of the platform's part. */
  platform: Address
  /** Basis points of the platform's part that go to whoever settles. */
  rewardShare: number
}

/** A tab as of one request. */
export type TabState = {
  /** `tab_` and 32 hex digits, drawn at random by the buyer's client. */
  tabId: string
  payer: Address
  /** The number of the request, from 1. Each state belongs to one request, and the one with the greatest number is the newest. */
  sequence: number
  /** Unix seconds: the contract settles strictly before. */
  expiry: number
  lines: readonly TabLine[]
}

const tabIdPattern = /^tab_[0-9a-f]{32}$/

/**
 * Derives the nonce of a tab: keccak256 of UTF-8 `x402-tab:{issuer}:{tabId}`. It belongs to this tab alone.
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
 * Builds the message that the buyer signs for a state of a tab: EIP-3009's `ReceiveWithAuthorization` for all lines together.
 *
 * The upper 216 bits of `validBefore` are those of the hash of platform, reward, number, nonce, payer, chain and lines; the lower 40 are the expiry.
 * To USDC it is a time far away. Only the contract may execute the message, and it recomputes the hash and enforces the expiry.
 *
 * @returns without a signature; `value` in USDC base units.
 * @throws {RangeError} for more lines or larger numbers than the contract takes.
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

/** A state of a tab by its nonce, which stands for the gateway and the tab's id. */
export type TabStateOfNonce = Omit<TabState, 'tabId'> & { nonce: Hex }

/**
 * Builds the message of {@link tabAuthorization} from a tab's nonce, for those who don't know its id and its gateway.
 *
 * @returns without a signature; `value` in USDC base units.
 * @throws {RangeError} for more lines or larger numbers than the contract takes.
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
 * keccak256 of the words platform << 96 | rewardShare << 40 | sequence, nonce, payer << 96 | chainId, and each line's split and amount.
 * Nonce, payer and chain make sure that lines which collide serve against no other tab.
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
 * Finds the split of a price on a tab. It is the percentage of the price's tier, so that all of a provider's odd prices share a line.
 *
 * @param wallets the provider's and the platform's, and the platform's fee schedule.
 * @param price USDC base units, over 0.
 * @returns undefined for a price whose fee has a fixed part (from 1 USDC on), which is paid alone.
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
 * The platform's part of a line, rounded down, once a line; the rest is the provider's.
 *
 * @param split as `encodeSplit` packs it.
 * @param amount USDC base units.
 */
export function platformPart(split: bigint, amount: bigint): bigint {
  const [providerShare, platformShare] = [(split >> 48n) & maxLineAmount, split & maxLineAmount]
  const shares = providerShare + platformShare
  return shares === 0n ? 0n : (amount * platformShare) / shares
}

/** The wallet that a line pays. */
export function providerOfSplit(split: bigint): Address {
  return `0x${(split >> 96n).toString(16).padStart(40, '0')}`
}

/** One request's payment by a tab, from `PAYMENT-SIGNATURE`. Nothing in it is verified. */
export type TabPayment = {
  tabId: string
  payer: Address
  sequence: number
  expiry: number
  /** The line that this request adds to. */
  line: number
  /** How many lines the gateway has acknowledged, whose splits aren't repeated. */
  known: number
  /** The splits of the lines from `known` on. */
  splits: readonly bigint[]
  /** The signed amount of each line, USDC base units. */
  amounts: readonly bigint[]
  signature: Hex
}

/** A {@link TabPayment} as JSON: `payload` of an x402 v2 payment by scheme `tab`, and `tab` of the gateway's `POST /verify`. */
export type TabPayload = {
  tab: string
  payer: Address
  sequence: number
  expiry: number
  line: number
  known: number
  /** 32 bytes each. */
  splits: readonly Hex[]
  /** 6 bytes a line, one behind the other. */
  amounts: Hex
  signature: Hex
}

/**
 * Writes a payment by a tab.
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

/** A split as 32 bytes of hex. */
export function toWord(split: bigint): Hex {
  return `0x${split.toString(16).padStart(64, '0')}`
}

const amountsPattern = new RegExp(`^0x(?:[0-9a-f]{12}){1,${maxTabLines}}$`)
const { invalid, object, text, integer } = fieldsOf('invalid_payload', 'Tab')

/**
 * Reads a payment by a tab. Hex is lower-case, except for the signature's; nothing is trimmed; the signature is not verified.
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
    throw invalid('splits', 'one for each line from `known` on')
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

/** @throws {RangeError} for an amount that the contract's 48 bits can't hold. */
export function requireLineAmount(amount: bigint): void {
  if (amount < 0n || amount > maxLineAmount)
    throw new RangeError(`A line's amount must be 0 to 2^48 - 1, got ${amount}`)
}

function requireInteger(name: string, value: number, most: number): void {
  if (!Number.isInteger(value) || value < 0 || value > most)
    throw new RangeError(`${name} must be an integer from 0 to ${most}, got ${value}`)
}
