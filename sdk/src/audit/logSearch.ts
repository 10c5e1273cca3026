import {
  type Address,
  BaseError,
  type Hex,
  HttpRequestError,
  type LogTopic,
  numberToHex,
  type PublicClient,
  type RpcLog,
  TimeoutError,
} from 'viem'

/**
 * Yields the token's logs that match the topics, in the order of the chain, range by range.
 *
 * When a node refuses a range (too many blocks, results or bytes, each worded differently), the search asks for half of
 * it, and never asks for more than that again.
 */
export type LogSearch = (topics: LogTopic[], fromBlock: bigint, toBlock: bigint) => AsyncGenerator<RpcLog[]>

export function createLogSearch(client: PublicClient, token: Address): LogSearch {
  let longestRange: bigint | undefined

  return async function* search(topics, fromBlock, toBlock) {
    let start = fromBlock
    while (start <= toBlock) {
      const wanted = toBlock - start + 1n
      const length: bigint = longestRange !== undefined && longestRange < wanted ? longestRange : wanted
      const range: { fromBlock: Hex; toBlock: Hex } = {
        fromBlock: numberToHex(start),
        toBlock: numberToHex(start + length - 1n),
      }
      let logs: RpcLog[]
      try {
        logs = await client.request({
          method: 'eth_getLogs',
          params: [{ address: token, topics, ...range }],
        })
      } catch (error) {
        if (length === 1n || !isRefusal(error)) throw error
        longestRange = length / 2n
        continue
      }
      yield logs
      start += length
    }
  }
}

/** Whether the node answered with a refusal, so that asking for less may help. It can't help if no node was reached. */
function isRefusal(error: unknown): boolean {
  if (!(error instanceof BaseError)) return false
  if (error.walk((cause) => cause instanceof TimeoutError)) return true
  const http = error.walk((cause) => cause instanceof HttpRequestError)
  if (http instanceof HttpRequestError) return http.status === 400 || http.status === 413
  // Any JSON-RPC error counts, because providers don't agree on a code.
  return error.walk((cause) => typeof (cause as { code?: unknown }).code === 'number') !== null
}
