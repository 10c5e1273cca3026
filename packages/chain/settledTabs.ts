import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { tabSettlementAbi } from '@tollkeeper/sdk/protocol/abi/tabSettlement'
import { decodeTabsSettled, type SignedTab } from '@tollkeeper/sdk/protocol/tabSettlement'
import { type Address, decodeEventLog, type Hex, type Log, toEventSelector } from 'viem'

/** The state of a tab that moved. */
export type SettledTab = Pick<SignedTab, 'sequence' | 'lines'>

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
export const batchSettled = toEventSelector(
  'BatchSettled(bytes32,address,address,uint8,uint256,uint256,uint256,bytes)',
)

/**
 * Reads the batches of tabs that a transaction settled in the token. TabsSettled doesn't name the token, but the BatchSettled after
 * it does; between the two only another token can have called the contract again, and its batches lie within.
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
      begun.push({ from: logIndex, tabs: decodeTabsSettled(args) })
      return []
    }
    if (topics[0] !== batchSettled) return []
    const batch = begun.pop()
    const { args } = decodeEventLog({ abi: batchSettlementAbi, eventName: 'BatchSettled', ...event })
    return batch && args.token.toLowerCase() === token ? [{ ...batch, to: logIndex }] : []
  })
}
