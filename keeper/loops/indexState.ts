import { type IndexState, readIndexState as readState } from '#ledger/facts/indexState'
import type { Context } from './context.ts'

/** Whether the index may be believed now, also for the metrics. Asked before anything is claimed. */
export async function readIndexState({ sql, served, settings, metrics }: Context): Promise<IndexState> {
  const state = await readState(sql, served, settings.maxIndexLagBlocks)
  for (const reason of ['missing', 'below_acted_block', 'stale']) {
    metrics.indexBehind.set(
      { network: served.network.name, reason },
      state.status === 'behind' && state.reason === reason ? 1 : 0,
    )
  }
  return state
}
