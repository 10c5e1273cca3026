import type { Address, LogTopic, PublicClient, RpcLog } from 'viem'
import { createLogRangeSearch } from '../nodes/logRanges.ts'

/** Yields the token's logs that match the topics, in chain order, one block range at a time. */
export type LogSearch = (topics: LogTopic[], fromBlock: bigint, toBlock: bigint) => AsyncGenerator<RpcLog[]>

export function createLogSearch(client: PublicClient, token: Address): LogSearch {
  const searchRange = createLogRangeSearch(client)
  return async function* search(topics, fromBlock, toBlock) {
    for await (const { logs } of searchRange({ address: token, topics }, { fromBlock, toBlock })) yield logs
  }
}
