import { type Address, decodeEventLog, type Hex, type Log, toEventSelector } from 'viem'
import { batchSettlementAbi } from '#protocol/abi/batchSettlement'
import { tabSettlementAbi } from '#protocol/abi/tabSettlement'
import type { TabLine } from '#protocol/tab'

/** The state of a tab that moved. */
export type SettledTab = { sequence: number; lines: TabLine[] }

/** A batch of tabs, as its TabsSettled shows it. */
export type TabBatch = {
  /** Log indexes of TabsSettled, and of the BatchSettled that ends the batch. */
  from: number
  to: number
  /** In the order in which they settled. */
  tabs: SettledTab[]
}

type TokenLog = Pick<Log, 'address' | 'topics' | 'data'> & { logIndex: number }

const tabsSettled = toEventSelector('TabsSettled(bytes32,uint256[],bytes)')
const batchSettled = toEventSelector(
  'BatchSettled(bytes32,address,address,uint8,uint256,uint256,uint256,bytes)',
)

/**
 * Reads the batches of tabs that a transaction settled in the token. TabsSettled doesn't name the token, and the BatchSettled that
 * follows it does; between the two only another token can have called the contract again, whose batches lie within.
 */
export function readTabBatches(
  logs: readonly TokenLog[],
  { token, tabSettlement }: { token: Address; tabSettlement: Address },
): TabBatch[] {
  const begun: Pick<TabBatch, 'from' | 'tabs'>[] = []
  return logs.flatMap(({ address, topics, data, logIndex }): TabBatch[] => {
    if (address.toLowerCase() !== tabSettlement) return []
    const event = { topics: topics as [Hex, ...Hex[]], data }
    if (topics[0] === tabsSettled) {
      const { args } = decodeEventLog({ abi: tabSettlementAbi, eventName: 'TabsSettled', ...event })
      begun.push({ from: logIndex, tabs: decodeTabs(args.splits, args.lines) })
      return []
    }
    if (topics[0] !== batchSettled) return []
    const batch = begun.pop()
    const { args } = decodeEventLog({ abi: batchSettlementAbi, eventName: 'BatchSettled', ...event })
    return batch && args.token.toLowerCase() === token ? [{ ...batch, to: logIndex }] : []
  })
}

/** Of each tab: the number of its lines (2 bytes), its sequence (5), and of each line the index of its split (2) and its amount (6). */
function decodeTabs(splits: readonly bigint[], lines: Hex): SettledTab[] {
  const tabs: SettledTab[] = []
  let at = 2
  const next = (bytes: number) => {
    const hex = lines.slice(at, at + 2 * bytes)
    at += 2 * bytes
    return BigInt(`0x${hex}`)
  }
  while (at < lines.length) {
    const count = Number(next(2))
    const sequence = Number(next(5))
    const own = Array.from({ length: count }, () => ({
      split: splits[Number(next(2))] ?? 0n,
      amount: next(6),
    }))
    tabs.push({ sequence, lines: own })
  }
  return tabs
}
