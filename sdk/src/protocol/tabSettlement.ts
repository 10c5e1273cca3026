import { type Address, decodeFunctionData, encodeFunctionData, type Hex } from 'viem'
import { tabSettlementAbi } from './abi/tabSettlement.ts'
import { lower } from './eip3009.ts'
import { type Batch, bits, decodeBatch, decodeSignature, encodeSignature } from './settlement.ts'
import { requireLineAmount, type TabLine } from './tab.ts'

/** The contract's `Batch` struct. Its tabs have one platform and one reward, and their payers signed both. */
export type TabBatch = Batch & {
  /** Basis points of the platform's part that go to whoever settles. */
  rewardShare: number
  /** Gas that is kept for each tab, line and payout, so that all that settles is paid out. Default: the contract's minimum. */
  tabGas?: bigint
  lineGas?: bigint
  payoutGas?: bigint
}

/** The state of a tab that moved, as `TabsSettled` shows it. */
export type SettledTab = {
  /** The recipient of the platform's part, as the payer signed it. It needn't be the one that a gateway accepted. */
  platform: Address
  /** Basis points of the platform's part that went to whoever settled, as the payer signed them. */
  rewardShare: number
  sequence: number
  lines: readonly TabLine[]
}

/** A state of a tab as its payer signed it. Addresses and hex are lower-case. */
export type SignedTab = {
  /** Known to whoever issued it; the chain has only the nonce. */
  tabId?: string
  payer: Address
  /** 32 bytes: {@link tabNonce}. */
  nonce: Hex
  sequence: number
  /** Unix seconds: the contract settles strictly before. */
  expiry: number
  lines: readonly TabLine[]
  /** 65 bytes r, s, v of a private key's signature, or up to 1,024 bytes of a contract wallet's (ERC-1271). */
  signature: Hex
}

/** The contract's `Tab` struct. */
export type PackedTab = { head: bigint; nonce: Hex; r: Hex; vs: Hex }

/** The calldata of one batch of tabs, and the arguments that it encodes. */
export type EncodedSettleTabs = {
  /** The splits of all lines, each once. Those of one provider are neighbours, so that it is paid once. */
  splits: bigint[]
  tabs: PackedTab[]
  /** 8 bytes a line: position in `splits`, amount. */
  lines: Hex
  /** The signatures that can't be compacted. Tabs refer to them by index. */
  signatures: Hex[]
  /** The call `settle(batch, splits, tabs, lines, signatures)`. */
  calldata: Hex
}

const maxCount = 2 ** 16
/** Hex digits of a line, and of the number of lines and the sequence, which `TabsSettled` has before a tab's lines. */
const lineDigits = 16
const headDigits = 14

/**
 * Packs a batch into the calldata of TabSettlement's `settle`.
 *
 * @param batch the contract's `Batch`: addresses in lower-case, `trigger` of {@link triggerCodes}, gas for each call.
 * @param tabs in the order in which they are tried: sorted by payer, so that nobody makes more than one fail at the caller's cost.
 * @throws {RangeError} for an amount of 2^48 or more, a tab of over 65,535 lines, or a batch of over 65,536 splits.
 * @example
 * import { encodeSettleTabs, encodeSplit, triggerCodes } from '@tollkeeper/sdk/protocol'
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
 * Reads the calldata that {@link encodeSettleTabs} wrote: the batch, and its tabs with the payers' signatures.
 *
 * Calldata proves nothing about what moved: anyone can call the contract with a token of their own. `readTabBatches` reads what moved
 * from a transaction's logs.
 *
 * @param calldata of a call of TabSettlement's `settle`, addresses and hex in any case.
 * @returns addresses and hex in lower-case.
 * @throws {TypeError} for a call of another function, for lines that don't match the tabs, or for a missing split or
 * signature.
 * @example
 * import { decodeSettleTabs } from '@tollkeeper/sdk/protocol'
 * import { parseTransaction } from 'viem'
 *
 * // The payers of a batch that we signed ourselves.
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
  if (!isAtEnd()) throw new TypeError('The tabs have fewer lines than there are')
  const { rewardShare, tabGas, lineGas, payoutGas } = batch
  return { batch: { ...decodeBatch(batch), rewardShare, tabGas, lineGas, payoutGas }, tabs }
}

/**
 * Reads the event `TabsSettled`: an entry for each tab with what moved for whom, in the order in which the token logged their nonces.
 *
 * The event doesn't name the token: `readTabBatches` reads it with the `BatchSettled` that does.
 *
 * @throws {TypeError} for bytes that the contract never writes.
 * @example
 * import { decodeTabsSettled } from '@tollkeeper/sdk/protocol'
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

/** Takes hex digits off the front, and refuses to take more than there are. */
function readerOf(hex: Hex): { take: (digits: number) => string; isAtEnd: () => boolean } {
  let at = 2
  return {
    take(digits) {
      if (at + digits > hex.length) throw new TypeError('The tabs have more lines than there are')
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
      throw new TypeError(`A line names split ${index}, of ${splits.length} that there are`)
    lines.push({ split, amount: BigInt(`0x${digits.slice(at + 4, at + lineDigits)}`) })
  }
  return lines
}
