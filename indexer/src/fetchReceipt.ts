import type { Context } from 'ponder:registry'
import { createPublicClient, fallback, type Hex, http } from 'viem'
import type { Receipt } from './receipt.ts'

export type TransactionPlace = { transactionHash: Hex; blockHash: Hex }

/** A node behind a load balancer may not know yet what another one has announced: 15 seconds in all. */
const retryDelaysMs = [0, 0, 125, 250, 500, 1_000, 2_000, 4_000, 8_000]

/** The last one read: a wrapper's transaction brings many events in a row, and they share a receipt. */
let last: { key: string; receipt: Receipt } | undefined

/**
 * Fetches a transaction's receipt as it stands in the given block; null if no node has it.
 *
 * An RPC that can't be reached throws: then Ponder stops, and starts again where it was.
 */
export async function fetchReceipt(
  { client, chain }: Pick<Context, 'client' | 'chain'>,
  { transactionHash, blockHash }: TransactionPlace,
): Promise<Receipt | null> {
  const key = `${chain.id} ${blockHash} ${transactionHash}`
  if (last?.key === key) return last.receipt
  for (const [attempt, delay] of retryDelaysMs.entries()) {
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay))
    // Ponder keeps a receipt by its transaction's hash alone, and drops it at no reorg: the same bytes mined again
    // would get the receipt of the block that is gone. So from the second time on the node itself is asked.
    const source = attempt === 0 ? client : uncachedClient(chain.name)
    const receipt: Receipt | null = await source.request({
      method: 'eth_getTransactionReceipt',
      params: [transactionHash],
    })
    if (receipt?.blockHash === blockHash) {
      last = { key, receipt }
      return receipt
    }
  }
  return null
}

/** The node that ponder.config.ts was given, without Ponder's cache between. */
function uncachedClient(network: string) {
  const urls = process.env[`RPC_URL_${network.toUpperCase().replaceAll('-', '_')}`]?.split(',') ?? []
  return createPublicClient({ transport: fallback(urls.map((url) => http(url.trim()))) })
}
