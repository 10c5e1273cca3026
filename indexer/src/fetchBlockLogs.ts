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

/** The readings of a block's transactions, by their hashes. */
export type BlockReadings = ReadonlyMap<Hex, Reading>

/** The last block that was read. It is cached, because the events of a block are handled one after the other. */
let last: { key: string; readings: BlockReadings | null } | undefined

/**
 * Reads all authorizations of a block with one call. Returns null if no node has the block's logs.
 *
 * Anyone who pays for gas can send any number of transfers to the platform, so all transfers of a block together must cost only one call.
 *
 * @param transferLogIndex the position of a transfer in the block. An answer without this log comes from a node that is behind.
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
