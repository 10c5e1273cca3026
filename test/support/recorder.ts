import { finalityOf } from '@tollkeeper/chain/finality'
import { readRecordHead } from '@tollkeeper/ledger/facts/record'
import { readRecordState } from '@tollkeeper/ledger/facts/recordState'
import { createRecorder } from '@tollkeeper/ledger/results/recorder'
import { createLogger } from '@tollkeeper/runtime/log'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import type { KeeperStack } from './keeperStack.ts'
import { until } from './until.ts'

/** Keeps the record up to date while no keeper runs, like an api process, but without pauses. */
export function startRecorder({
  database,
  served,
  settings,
}: Pick<KeeperStack, 'database' | 'served' | 'settings'>): Loop {
  const finalityBlocks = finalityOf(served.network.chainId)
  const log = createLogger('test', 'error')
  const recorder = createRecorder({ sql: database, served, finalityBlocks, log })
  return repeat({
    name: 'record',
    everyMs: 200,
    async step() {
      const record = await readRecordState(database, served, settings.maxIndexLagBlocks)
      if ((await recorder.followReorgs(record)) !== null) await recorder.record()
    },
    onError: (error) => log.warn({ err: error }, 'the record could not be updated'),
  })
}

/** Waits until the last block is in the record. Any running process may record it. */
export async function untilInRecord({
  database,
  served,
}: Pick<KeeperStack, 'database' | 'served'>): Promise<void> {
  const head = await served.client.getBlockNumber({ cacheTime: 0 })
  await until('the record is at the end of the chain', async () => {
    const recorded = await readRecordHead(database, served.network.chainId)
    return recorded !== null && recorded.blockNumber >= head
  })
}
