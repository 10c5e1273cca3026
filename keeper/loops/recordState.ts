import { type RecordState, readRecordState as readState } from '@tollkeeper/ledger/facts/recordState'
import type { Context } from './context.ts'

/** Returns whether the record is up to date, and reports it to the metrics. Call it before claiming anything. */
export async function readRecordState({ sql, served, settings, metrics }: Context): Promise<RecordState> {
  const state = await readState(sql, served, settings.maxIndexLagBlocks)
  for (const reason of ['missing', 'below_acted_block', 'stale']) {
    metrics.indexBehind.set(
      { network: served.network.name, reason },
      state.status === 'behind' && state.reason === reason ? 1 : 0,
    )
  }
  return state
}
