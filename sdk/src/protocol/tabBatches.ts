import { type Address, decodeEventLog, type Hex, toEventSelector } from 'viem'
import { batchSettlementAbi } from './abi/batchSettlement.ts'
import { tabSettlementAbi } from './abi/tabSettlement.ts'
import { decodeTabsSettled, type SettledTab } from './tabSettlement.ts'

/** A batch of tabs in one token, read from its transaction's logs. */
export type SettledTabBatch = {
  /**
   * Log index of the batch's `TabsSettled`. The token's last `AuthorizationUsed` events before it belong to the batch's tabs: one event per tab, in
   * order.
   */
  from: number
  /** Log index of the BatchSettled that ends the batch. */
  to: number
  /** The batch's tabs, in the order in which they settled. */
  tabs: SettledTab[]
}

/** The fields of a transaction's log that this file reads. */
export type TransactionLog = { address: Address; topics: readonly Hex[]; data: Hex; logIndex: number }

/** Topics of the two events that start and end a batch of tabs. */
export const tabsSettledTopic = toEventSelector('TabsSettled(bytes32,address,uint16,uint256[],bytes)')
export const batchSettledTopic = toEventSelector(
  'BatchSettled(bytes32,address,address,uint8,uint256,uint256,uint256,bytes)',
)

/**
 * Reads the batches of tabs that a transaction settled in one token.
 *
 * Only events of the given TabSettlement count. A batch emits TabsSettled, and later BatchSettled. Only BatchSettled contains the token. Between
 * these two events, a malicious token can call the contract again. The inner batch then emits both of its events before the outer batch emits
 * BatchSettled. So each BatchSettled belongs to the last TabsSettled that isn't yet paired with a BatchSettled. This rule doesn't depend on who
 * called the contract, so calldata isn't read.
 *
 * @param logs the logs of one transaction, in order.
 * @param contracts the addresses of the token and of TabSettlement, lower-case.
 * @example
 * import { readTabBatches } from '@tollkeeper/sdk/protocol/settlement'
 * import type { PublicClient } from 'viem'
 *
 * export async function settledIn(client: PublicClient, hash: `0x${string}`, contracts: Parameters<typeof readTabBatches>[1]) {
 *   const { logs } = await client.getTransactionReceipt({ hash })
 *   return readTabBatches(logs, contracts).flatMap(({ tabs }) => tabs)
 * }
 */
export function readTabBatches(
  logs: readonly TransactionLog[],
  { token, tabSettlement }: { token: Address; tabSettlement: Address },
): SettledTabBatch[] {
  const begun: Pick<SettledTabBatch, 'from' | 'tabs'>[] = []
  return logs.flatMap(({ address, topics, data, logIndex }): SettledTabBatch[] => {
    if (address.toLowerCase() !== tabSettlement) return []
    const event = { topics: topics as [Hex, ...Hex[]], data }
    if (topics[0] === tabsSettledTopic) {
      const { args } = decodeEventLog({ abi: tabSettlementAbi, eventName: 'TabsSettled', ...event })
      begun.push({ from: logIndex, tabs: decodeTabsSettled(args) })
      return []
    }
    if (topics[0] !== batchSettledTopic) return []
    const batch = begun.pop()
    const { args } = decodeEventLog({ abi: batchSettlementAbi, eventName: 'BatchSettled', ...event })
    return batch && args.token.toLowerCase() === token ? [{ ...batch, to: logIndex }] : []
  })
}

/**
 * Finds the tab that each use of an authorization settled. The keys are the log indexes of `AuthorizationUsed`.
 *
 * @param batches the result of {@link readTabBatches}.
 * @param uses log indexes of the token's `AuthorizationUsed` in the same transaction, in ascending order.
 */
export function tabsByUse(
  batches: readonly SettledTabBatch[],
  uses: readonly number[],
): ReadonlyMap<number, SettledTab> {
  const found = new Map<number, SettledTab>()
  for (const { from, tabs } of batches) {
    if (tabs.length === 0) continue
    const own = uses.filter((logIndex) => logIndex < from).slice(-tabs.length)
    for (const [index, logIndex] of own.entries()) {
      const tab = tabs[index]
      if (tab) found.set(logIndex, tab)
    }
  }
  return found
}
