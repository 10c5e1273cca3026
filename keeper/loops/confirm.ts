import { insertConfirmation, readUnconfirmedBlocks } from '#ledger/confirmations'
import type { IndexState } from '#ledger/indexState'
import type { Context } from './context.ts'

/** How far back a restart looks for blocks whose confirmation it may have missed. */
const lookBackBlocks = 50_000n

/** Writes down when each block with settlements reached its network's depth: the time of the block that gave it. */
export function createConfirmer(context: Context) {
  const { sql, served } = context
  const { chainId, confirmations } = served.network
  const depth = BigInt(confirmations)
  let since: bigint | null = null

  return async function confirm(index: IndexState): Promise<void> {
    if (index.status !== 'current') return
    const safeBlock = index.head.blockNumber - depth
    if (safeBlock < 0n) return
    const from = since ?? (safeBlock > lookBackBlocks ? safeBlock - lookBackBlocks : 0n)
    for (const block of await readUnconfirmedBlocks(sql, { chainId }, from, safeBlock)) {
      const gaveDepth = await served.client.getBlock({ blockNumber: block.blockNumber + depth })
      await insertConfirmation(sql, chainId, block, new Date(Number(gaveDepth.timestamp) * 1000))
    }
    // A reorg may put another block in the place of one that was confirmed: those are looked at again.
    const next = safeBlock - context.finalityBlocks
    since = next > 0n ? next : 0n
  }
}
