import { type Address, decodeFunctionData, encodeFunctionData, type Hex } from 'viem'
import { tabSettlementAbi } from './abi/tabSettlement.ts'
import { compactSignature, expandSignature } from './eip3009.ts'
import type { TabLine } from './tab.ts'

export type TabBatch = {
  token: Address
  feeRecipient: Address
  rewardShare: number
  batchId: Hex
  trigger: number
  callGasLimit: bigint
}
export type SignedTab = {
  payer: Address
  nonce: Hex
  sequence: number
  expiry: number
  lines: readonly TabLine[]
  signature: Hex
}
const zeroWord: Hex = `0x${'0'.repeat(64)}`

export function encodeSettleTabs(batch: TabBatch, tabs: readonly SignedTab[]) {
  const splits = [...new Set(tabs.flatMap(({ lines }) => lines.map(({ split }) => split)))].sort((a, b) =>
    a < b ? -1 : 1,
  )
  const index = new Map(splits.map((split, at) => [split, at]))
  const signatures: Hex[] = []
  let lines = '0x'
  const packed = tabs.map((tab) => {
    for (const { split, amount } of tab.lines)
      lines += (index.get(split) ?? 0).toString(16).padStart(4, '0') + amount.toString(16).padStart(12, '0')
    const compact = compactSignature(tab.signature) ?? {
      r: `0x${(signatures.push(tab.signature) - 1).toString(16).padStart(64, '0')}` as Hex,
      vs: zeroWord,
    }
    const head =
      (BigInt(tab.payer) << 96n) |
      (BigInt(tab.lines.length) << 80n) |
      (BigInt(tab.sequence) << 40n) |
      BigInt(tab.expiry)
    return { head, nonce: tab.nonce, r: compact.r, vs: compact.vs }
  })
  const calldata = encodeFunctionData({
    abi: tabSettlementAbi,
    functionName: 'settle',
    args: [batch, splits, packed, lines as Hex, signatures],
  })
  return { splits, calldata }
}

export function decodeSettleTabs(calldata: Hex): { batch: TabBatch; tabs: SignedTab[] } {
  const call = decodeFunctionData({ abi: tabSettlementAbi, data: calldata })
  if (call.functionName !== 'settle') throw new TypeError('settle')
  const [batch, splits, packed, lines, signatures] = call.args
  let at = 2
  const mask = 2n ** 40n - 1n
  return {
    batch: {
      ...batch,
      token: batch.token.toLowerCase() as Address,
      feeRecipient: batch.feeRecipient.toLowerCase() as Address,
    },
    tabs: packed.map(({ head, nonce, r, vs }) => {
      const count = Number((head >> 80n) & 0xffffn)
      const own: TabLine[] = []
      for (let i = 0; i < count; i++, at += 16)
        own.push({
          split: splits[Number.parseInt(lines.slice(at, at + 4), 16)] ?? 0n,
          amount: BigInt(`0x${lines.slice(at + 4, at + 16)}`),
        })
      return {
        payer: `0x${(head >> 96n).toString(16).padStart(40, '0')}` as Address,
        nonce,
        sequence: Number((head >> 40n) & mask),
        expiry: Number(head & mask),
        lines: own,
        signature:
          (BigInt(vs) << 1n) % 2n ** 256n === 0n
            ? (signatures[Number(r)] ?? '0x')
            : expandSignature({ r, vs }),
      }
    }),
  }
}
