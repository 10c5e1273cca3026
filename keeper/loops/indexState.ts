import { readActedBlock, readIndexedHead } from '#ledger/indexedHead'
import { type IndexState, judgeIndex } from '#ledger/indexState'
import type { Context } from './context.ts'

/** The loops of a network share one look at its head for so long: a block of a fast chain, where the index may be behind by 20. */
const headAgeMs = 2_000

/** Whether the index may be believed now. Asked before everything that relies on an authorization being unsettled. */
export async function readIndexState(context: Context): Promise<IndexState> {
  const { sql, served, settings, metrics } = context
  const { chainId, name } = served.network
  // The index first: read in the other order, a block in between would make it seem further behind than it is.
  const indexed = await readIndexedHead(sql, chainId)
  const [acted, chainHead] = await Promise.all([
    readActedBlock(sql, chainId),
    served.client.getBlockNumber({ cacheTime: headAgeMs }),
  ])
  const state = judgeIndex(indexed, acted, chainHead, settings.maxIndexLagBlocks)
  for (const reason of ['missing', 'below_acted_block', 'stale']) {
    metrics.indexBehind.set(
      { network: name, reason },
      state.status === 'behind' && state.reason === reason ? 1 : 0,
    )
  }
  return state
}
