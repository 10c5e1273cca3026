import { insertConfirmation, readUnconfirmedBlocks } from '#ledger/confirmations'
import { unfinishEvidence } from '#ledger/evidence'
import { readConfirmedBlocks } from '#ledger/reopen'
import type { Context } from './context.ts'
import { stands } from './reorgs.ts'

/** How far back the first look goes. */
const lookBackBlocks = 50_000n

/**
 * Writes down when each block with settlements reached its network's depth: the time of the block that gave it.
 *
 * All that is written down is of one chain: whether the newest block stands tells whether a reorg took any of them.
 *
 * @returns false where the index or an earlier block is of a chain that is gone: the reorg is followed first.
 */
export async function confirmBlocks(
  context: Context,
  { after, upTo }: { after: bigint; upTo: bigint },
): Promise<boolean> {
  const { sql, served, memory } = context
  const { chainId, confirmations } = served.network
  const oldest = upTo - lookBackBlocks
  const blocks = await readUnconfirmedBlocks(sql, { chainId }, after > oldest ? after : oldest, upTo)
  if (blocks.length === 0) return true
  for (const block of [...(await readConfirmedBlocks(sql, chainId, { limit: 1 })), ...blocks]) {
    if (await stands(context, block)) continue
    await unfinishEvidence(sql, chainId, block)
    memory.look = null
    return false
  }
  for (const block of blocks) {
    const gaveDepth = await served.client.getBlock({ blockNumber: block.blockNumber + BigInt(confirmations) })
    await insertConfirmation(sql, chainId, block, new Date(Number(gaveDepth.timestamp) * 1000))
  }
  return true
}
