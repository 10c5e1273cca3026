import { type Address, decodeFunctionData, encodeFunctionData, type Hex } from 'viem'
import { tabSettlementAbi } from './abi/tabSettlement.ts'
import { type Batch, bits, decodeBatch, decodeSignature, encodeSignature } from './batchSettlement.ts'
import { lower } from './eip3009.ts'
import { requireLineAmount, type TabLine } from './tab.ts'

/** The contract's `Batch` struct. All tabs of a batch have the same platform and reward, which their payers signed. */
export type TabBatch = Batch & {
  /** The reward for settling, in basis points of the platform's part. */
  rewardShare: number
  /** Gas that is reserved per tab, line and payout, so that everything that settles can also be paid out. Default: the contract's minimum. */
  tabGas?: bigint
  lineGas?: bigint
  payoutGas?: bigint
}

/** A settled state of a tab, from the event `TabsSettled`. */
export type SettledTab = {
  /** The recipient of the platform's part, as the payer signed it. A payer can sign and settle states with a recipient that no gateway accepted. */
  platform: Address
  /** The reward for settling, in basis points of the platform's part, as the payer signed it. */
  rewardShare: number
  sequence: number
  lines: readonly TabLine[]
}

/** A state of a tab as the payer signed it. Addresses and hex are lower-case. */
export type SignedTab = {
  /** The tab's id. Only the buyer and the gateway know it, because the chain contains only the nonce. */
  tabId?: string
  payer: Address
  /** 32 bytes: {@link tabNonce}. */
  nonce: Hex
  sequence: number
  /** Expiry in Unix seconds. The contract settles only before this time. */
  expiry: number
  lines: readonly TabLine[]
  /** The signature: 65 bytes (r, s, v) by a private key, or up to 1,024 bytes by a contract wallet (ERC-1271). */
  signature: Hex
}

/** The contract's `Tab` struct. */
export type PackedTab = { head: bigint; nonce: Hex; r: Hex; vs: Hex }

/** The calldata of one batch of tabs, and the arguments encoded in it. */
export type EncodedSettleTabs = {
  /** The splits of all lines, each once. Splits of the same provider are adjacent, so that the contract pays the provider once. */
  splits: bigint[]
  tabs: PackedTab[]
  /** The lines, 8 bytes each: the index in `splits`, and the amount. */
  lines: Hex
  /** The signatures that can't be compacted. Tabs refer to them by index. */
  signatures: Hex[]
  /** The call `settle(batch, splits, tabs, lines, signatures)`. */
  calldata: Hex
}

const maxCount = 2 ** 16
/** Number of hex digits of a line, and of a tab's header in `TabsSettled`, which contains the number of lines and the sequence number. */
const lineDigits = 16
const headDigits = 14

/**
 * Encodes a batch as calldata for TabSettlement's `settle`.
 *
 * @param batch the contract's `Batch`, with addresses in lower-case, a `trigger` of {@link triggerCodes}, and the gas limit per call.
 * @param tabs the tabs in the order in which the contract tries them. Sort them by payer: after a tab has failed, the contract skips the payer's next
 * tabs. So each payer can make at most one attempt fail at the caller's cost.
 * @throws {RangeError} for an amount of 2^48 or more, a tab of more than 65,535 lines, or a batch of more than 65,536 splits.
 * @example
 * import { encodeSplit } from '@tollkeeper/sdk/protocol'
 * import { encodeSettleTabs, triggerCodes } from '@tollkeeper/sdk/protocol/settlement'
 *
 * const batch = {
 *   token: '0x833589fcd6edb6e08f4c7c32d4f71b54bda02913',
 *   feeRecipient: `0x${'c'.repeat(40)}`,
 *   rewardShare: 1_000,
 *   batchId: `0x${'0'.repeat(63)}1`,
 *   trigger: triggerCodes.amount,
 *   callGasLimit: 120_000n,
 * } as const
 * const split = encodeSplit({ provider: `0x${'b'.repeat(40)}`, providerShare: 19n, platformShare: 1n })
 * const tab = {
 *   payer: `0x${'a'.repeat(40)}`,
 *   nonce: `0x${'0'.repeat(63)}1`,
 *   sequence: 7,
 *   expiry: 1_800_093_600,
 *   lines: [{ split, amount: 40_000n }],
 *   signature: `0x${'1'.repeat(128)}1b`,
 * } as const
 * console.log(encodeSettleTabs(batch, [tab]).lines)
 * // 0x0000000000009c40
 */
export function encodeSettleTabs(batch: TabBatch, tabs: readonly SignedTab[]): EncodedSettleTabs {
  const splits = [...new Set(tabs.flatMap(({ lines }) => lines.map(({ split }) => split)))].sort((a, b) =>
    a < b ? -1 : 1,
  )
  if (splits.length > maxCount) throw new RangeError(`A batch has at most ${maxCount} splits`)
  const indexes = new Map(splits.map((split, index) => [split, index.toString(16).padStart(4, '0')]))
  const signatures: Hex[] = []
  const lines: string[] = []
  const packed = tabs.map((tab): PackedTab => {
    for (const { split, amount } of tab.lines) {
      requireLineAmount(amount)
      lines.push(`${indexes.get(split)}${amount.toString(16).padStart(12, '0')}`)
    }
    const { r, vs } = encodeSignature(tab.signature, (long) => signatures.push(long) - 1)
    return { head: encodeHead(tab), nonce: tab.nonce, r, vs }
  })
  const packedLines: Hex = `0x${lines.join('')}`
  const { tabGas = 0n, lineGas = 0n, payoutGas = 0n } = batch
  const calldata = encodeFunctionData({
    abi: tabSettlementAbi,
    functionName: 'settle',
    args: [{ ...batch, tabGas, lineGas, payoutGas }, splits, packed, packedLines, signatures],
  })
  return { splits, tabs: packed, lines: packedLines, signatures, calldata }
}

/**
 * Decodes the calldata of {@link encodeSettleTabs}. Returns the batch, and its tabs with the payers' signatures.
 *
 * Calldata doesn't prove which USDC moved: anyone can call the contract with another token. Use `readTabBatches`, which reads the transaction's logs.
 *
 * @param calldata calldata of TabSettlement's `settle`. Addresses and hex may have any case.
 * @returns addresses and hex in lower-case.
 * @throws {TypeError} for a call of any other function, for lines that don't match the tabs, or for a missing split or signature.
 * @example
 * import { decodeSettleTabs } from '@tollkeeper/sdk/protocol/settlement'
 * import { parseTransaction } from 'viem'
 *
 * // Returns the payers of a batch that we signed ourselves.
 * export function payersOf(raw: `0x${string}`) {
 *   const { data = '0x' } = parseTransaction(raw)
 *   return decodeSettleTabs(data).tabs.map(({ payer }) => payer)
 * }
 */
export function decodeSettleTabs(calldata: Hex): { batch: Required<TabBatch>; tabs: SignedTab[] } {
  const call = decodeFunctionData({ abi: tabSettlementAbi, data: calldata })
  if (call.functionName !== 'settle')
    throw new TypeError(`A call of settle was expected, got ${call.functionName}`)
  const [batch, splits, packed, lines, signatures] = call.args
  const { take, isAtEnd } = readerOf(lines)
  const tabs = packed.map(({ head, nonce, r, vs }): SignedTab => {
    const lineCount = Number(bits(head, 80n, 16n))
    return {
      payer: `0x${(head >> 96n).toString(16).padStart(40, '0')}`,
      nonce,
      sequence: Number(bits(head, 40n, 40n)),
      expiry: Number(bits(head, 0n, 40n)),
      lines: decodeLines(take(lineCount * lineDigits), splits),
      signature: decodeSignature(r, vs, signatures),
    }
  })
  if (!isAtEnd()) throw new TypeError('The tabs have fewer lines than the data')
  const { rewardShare, tabGas, lineGas, payoutGas } = batch
  return { batch: { ...decodeBatch(batch), rewardShare, tabGas, lineGas, payoutGas }, tabs }
}

/**
 * Decodes the event `TabsSettled`. Returns an entry for each tab with the amounts that moved and their recipients, in the order in which the token
 * logged the tabs' nonces.
 *
 * The event doesn't contain the token. `readTabBatches` reads the event together with `BatchSettled`, which does.
 *
 * @throws {TypeError} for bytes that the contract never writes.
 * @example
 * import { decodeTabsSettled } from '@tollkeeper/sdk/protocol/settlement'
 *
 * const [tab] = decodeTabsSettled({
 *   platform: `0x${'b'.repeat(40)}`,
 *   rewardShare: 1_000,
 *   splits: [7n],
 *   lines: '0x000100000000020000000000009c40',
 * })
 * console.log(tab?.rewardShare, tab?.sequence, tab?.lines)
 * // 1000 2 [ { split: 7n, amount: 40000n } ]
 */
export function decodeTabsSettled(event: {
  platform: Address
  rewardShare: number
  splits: readonly bigint[]
  lines: Hex
}): SettledTab[] {
  const { rewardShare, splits } = event
  const platform = lower(event.platform)
  const { take, isAtEnd } = readerOf(event.lines)
  const tabs: SettledTab[] = []
  while (!isAtEnd()) {
    const head = take(headDigits)
    const lineCount = Number.parseInt(head.slice(0, 4), 16)
    const sequence = Number.parseInt(head.slice(4), 16)
    const lines = decodeLines(take(lineCount * lineDigits), splits)
    tabs.push({ platform, rewardShare, sequence, lines })
  }
  return tabs
}

function encodeHead({ payer, lines, sequence, expiry }: SignedTab): bigint {
  if (lines.length >= maxCount)
    throw new RangeError(`A tab has at most ${maxCount - 1} lines, got ${lines.length}`)
  return (BigInt(payer) << 96n) | (BigInt(lines.length) << 80n) | (BigInt(sequence) << 40n) | BigInt(expiry)
}

/** Returns a function that reads hex digits in order, and rejects a read beyond the end. */
function readerOf(hex: Hex): { take: (digits: number) => string; isAtEnd: () => boolean } {
  let at = 2
  return {
    take(digits) {
      if (at + digits > hex.length) throw new TypeError('The tabs have more lines than the data')
      at += digits
      return hex.slice(at - digits, at)
    },
    isAtEnd: () => at === hex.length,
  }
}

function decodeLines(digits: string, splits: readonly bigint[]): TabLine[] {
  const lines: TabLine[] = []
  for (let at = 0; at < digits.length; at += lineDigits) {
    const index = Number.parseInt(digits.slice(at, at + 4), 16)
    const split = splits[index]
    if (split === undefined)
      throw new TypeError(`A line names split ${index}, but there are only ${splits.length}`)
    lines.push({ split, amount: BigInt(`0x${digits.slice(at + 4, at + lineDigits)}`) })
  }
  return lines
}
