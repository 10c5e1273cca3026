import type { Context } from 'ponder:registry'
import type { Hex } from 'viem'
import type { Receipt } from './receipt.ts'

type Client = Context['client']

export type TransactionPlace = { chainId: number; transactionHash: Hex; blockHash: Hex }

/** A node behind a load balancer may not know yet what another one has announced: 15 seconds in all. */
const retryDelaysMs = [0, 125, 250, 500, 1_000, 2_000, 4_000, 8_000]

/** The last one read: a wrapper's transaction brings many events in a row, and they share a receipt. */
let last: { key: string; receipt: Receipt } | undefined

/**
 * Fetches a transaction's receipt as it stands in the given block; null if no node has it.
 *
 * An RPC that can't be reached throws: then Ponder stops, and starts again where it was.
 */
export async function fetchReceipt(client: Client, place: TransactionPlace): Promise<Receipt | null> {
  const key = `${place.chainId} ${place.blockHash} ${place.transactionHash}`
  if (last?.key === key) return last.receipt
  for (const delay of retryDelaysMs) {
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay))
    const receipt = (await byHash(client, place)) ?? (await byBlock(client, place))
    if (receipt !== null) {
      last = { key, receipt }
      return receipt
    }
  }
  return null
}

async function byHash(client: Client, { transactionHash, blockHash }: TransactionPlace) {
  const receipt: Receipt | null = await client.request({
    method: 'eth_getTransactionReceipt',
    params: [transactionHash],
  })
  // Ponder keeps answers by the transaction's hash, and drops them at no reorg: the same bytes mined again in
  // another block would get the receipt of the block that is gone.
  return receipt?.blockHash === blockHash ? receipt : null
}

/** By the block's hash, which Ponder doesn't cache. */
async function byBlock(client: Client, { transactionHash, blockHash }: TransactionPlace) {
  const receipts: readonly Receipt[] | null = await client.request({
    method: 'eth_getBlockReceipts',
    params: [blockHash],
  })
  return receipts?.find((receipt) => receipt.transactionHash === transactionHash) ?? null
}
