import type { Context } from 'ponder:registry'
import { type Hex, hexToNumber } from 'viem'
import { askNodes } from './nodes.ts'
import {
  type Addresses,
  authorizationCanceled,
  authorizationUsed,
  batchSettled,
  type Reading,
  type ReceiptLog,
  readReceipt,
  tabsSettled,
  transfer,
} from './receipt.ts'

/** What each transaction of a block proves, by its hash. */
export type BlockReadings = ReadonlyMap<Hex, Reading>

/** The last block read: its events come in a row. */
let last: { key: string; readings: BlockReadings | null } | undefined

/**
 * Reads all authorizations of a block from one answer; null if no node has the block's logs.
 *
 * Anybody may send the platform as many transfers as he pays gas for, so all of a block's transfers together cost one
 * call.
 *
 * @param transferLogIndex A transfer in the block: an answer without it comes from a node that is behind.
 */
export async function fetchBlockLogs(
  { chain }: Pick<Context, 'chain'>,
  blockHash: Hex,
  transferLogIndex: number,
  addresses: Addresses,
  { isPatient = true } = {},
): Promise<BlockReadings | null> {
  const key = `${chain.id} ${blockHash}`
  if (last?.key === key && (isPatient || last.readings)) return last.readings
  const address = [addresses.token, addresses.settlement, addresses.tabSettlement]
  const topics: Hex[][] = [[authorizationUsed, authorizationCanceled, transfer, batchSettled, tabsSettled]]
  const logs = await askNodes(chain.name, {
    ask: (node) => node.request({ method: 'eth_getLogs', params: [{ blockHash, address, topics }] }),
    isComplete: (logs) => logs.some(({ logIndex }) => logIndex && hexToNumber(logIndex) === transferLogIndex),
    isPatient,
  })
  const byTransaction = new Map<Hex, ReceiptLog[]>()
  for (const { transactionHash, address, topics, data, logIndex } of logs ?? []) {
    if (!transactionHash || !logIndex) continue
    const known = byTransaction.get(transactionHash)
    if (known) known.push({ address, topics, data, logIndex })
    else byTransaction.set(transactionHash, [{ address, topics, data, logIndex }])
  }
  const readings =
    logs && new Map([...byTransaction].map(([hash, logs]) => [hash, readReceipt(logs, addresses)]))
  last = { key, readings }
  return readings
}
