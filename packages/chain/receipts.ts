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
 * One node's receipt of a transaction, if that stands in a block which the node holds to be canonical. Null while it isn't mined:
 * a node with pre-confirmed blocks has a receipt seconds before it has the receipt's block.
 */
export async function canonicalReceipt(
  client: PublicClient,
  hash: Hex,
): Promise<(Mined & { timestamp: bigint }) | null> {
  const receipt = await orNullIfBehind(client.getTransactionReceipt({ hash }))
  // A pre-confirmed receipt may name no block at all.
  if (!receipt?.blockHash || receipt.blockNumber === null) return null
  const block = await orNullIfBehind(client.getBlock({ blockNumber: receipt.blockNumber }))
  if (block?.hash !== receipt.blockHash) return null
  return { hash, receipt, timestamp: block.timestamp }
}

/** Null if the node doesn't have it yet. */
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
 * Looks on every RPC for the mined one among transactions of one nonce.
 *
 * @returns null only if every RPC answered and none has a receipt.
 * @throws {ChainUnavailable} if there is none, but an RPC failed to answer.
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
  const found = await askAny(clients, look).catch(() => [])
  const mined = found.find((one) => one !== null)
  if (mined) return mined
  const all = await askEverywhere(clients, look)
  return all.find((one) => one !== null) ?? null
}

/** The wallet's next nonce by the most advanced RPC: from one that lags behind, we would sign a used nonce. */
export async function readNonce(clients: readonly PublicClient[], address: Address): Promise<number> {
  const nonces = await askAny(clients, (client) =>
    client.getTransactionCount({ address, blockTag: 'latest' }),
  )
  return Math.max(...nonces)
}

/** Whether a node holds an unmined transaction of the wallet. Nodes that don't count them say no. */
export async function hasPending(clients: readonly PublicClient[], address: Address): Promise<boolean> {
  const waiting = await askAny(clients, async (client) => {
    const [latest, pending] = await Promise.all(
      (['latest', 'pending'] as const).map((blockTag) => client.getTransactionCount({ address, blockTag })),
    )
    return (pending ?? 0) > (latest ?? 0)
  })
  return waiting.includes(true)
}
