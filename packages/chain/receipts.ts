import { readNodeError } from '@tollkeeper/sdk/nodes/nodeErrors'
import {
  type Address,
  BlockNotFoundError,
  type Hex,
  type PublicClient,
  type TransactionReceipt,
  TransactionReceiptNotFoundError,
} from 'viem'
import { askAny, askEverywhere } from './everywhere.ts'

export type Mined = { hash: Hex; receipt: TransactionReceipt }

/**
 * Returns one node's receipt of a transaction if the transaction is in a block that the node considers canonical. Returns null
 * otherwise: a node with pre-confirmed blocks has the receipt some seconds before it has the block.
 */
export async function canonicalReceipt(
  client: PublicClient,
  hash: Hex,
): Promise<(Mined & { timestamp: bigint }) | null> {
  const receipt = await orNullIfBehind(client.getTransactionReceipt({ hash }))
  // A pre-confirmed receipt may have no block.
  if (!receipt?.blockHash || receipt.blockNumber === null) return null
  const block = await orNullIfBehind(client.getBlock({ blockNumber: receipt.blockNumber }))
  if (block?.hash !== receipt.blockHash) return null
  return { hash, receipt, timestamp: block.timestamp }
}

/** Returns null if the node doesn't have the block yet. */
async function orNullIfBehind<Answer>(asked: Promise<Answer>): Promise<Answer | null> {
  try {
    return await asked
  } catch (error) {
    if (error instanceof TransactionReceiptNotFoundError || error instanceof BlockNotFoundError) return null
    if (readNodeError(error).kind === 'behind') return null
    throw error
  }
}

/**
 * Asks every RPC for receipts of transactions with the same nonce, of which at most one is mined.
 *
 * @returns null only if every RPC responded and none has a receipt.
 * @throws {ChainUnavailable} if no RPC has a receipt, but one of them did not respond.
 */
export async function findMined(
  clients: readonly PublicClient[],
  hashes: readonly Hex[],
): Promise<Mined | null> {
  const look = async (client: PublicClient) => {
    const found = await Promise.all(hashes.map((hash) => canonicalReceipt(client, hash)))
    const mined = found.find((one) => one !== null)
    return mined ? { hash: mined.hash, receipt: mined.receipt } : null
  }
  const looked = clients.map(look)
  const answers = await Promise.allSettled(looked)
  const mined = answers.flatMap((one) => (one.status === 'fulfilled' ? (one.value ?? []) : []))[0]
  if (mined) return mined
  // Throws if any of the calls failed. The calls are already done, so this sends nothing.
  await askEverywhere(looked, (answer) => answer)
  return null
}

/**
 * Returns the wallet's next nonce according to the most advanced RPC. With the nonce of an RPC that lags behind, we would sign a
 * used nonce.
 */
export async function readNonce(clients: readonly PublicClient[], address: Address): Promise<number> {
  const nonces = await askAny(clients, (client) =>
    client.getTransactionCount({ address, blockTag: 'latest' }),
  )
  return Math.max(...nonces)
}

/**
 * Whether a node has an unmined transaction of the wallet. A node that doesn't count unmined transactions reports that it has
 * none.
 */
export async function hasPending(clients: readonly PublicClient[], address: Address): Promise<boolean> {
  const waiting = await askAny(clients, async (client) => {
    const [latest, pending] = await Promise.all(
      (['latest', 'pending'] as const).map((blockTag) => client.getTransactionCount({ address, blockTag })),
    )
    return (pending ?? 0) > (latest ?? 0)
  })
  return waiting.includes(true)
}
