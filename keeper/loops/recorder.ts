import { readBatchesMinedIn } from '@tollkeeper/ledger/batches/batches'
import { markUnmined } from '@tollkeeper/ledger/batches/transactions'
import type { RecordedBlock } from '@tollkeeper/ledger/facts/record'
import { createRecorder, type Recorder, type RecorderOptions } from '@tollkeeper/ledger/results/recorder'
import { reportBadRow } from '../settings/startLoop.ts'
import type { Context } from './context.ts'
import { moveBatch } from './moveBatch.ts'

/** Creates the recorder of a network. If a reorg drops a recorded block, the batches that were mined in it are followed again. */
export function createKeeperRecorder(
  context: Context,
  options: Pick<RecorderOptions, 'lookEveryMs'> = {},
): Recorder {
  const { sql, served, finalityBlocks, log, metrics, checkpoint } = context
  const network = served.network.name
  return createRecorder({
    sql,
    served,
    finalityBlocks,
    log,
    checkpoint,
    ...options,
    onGone: (block) => unmineBatches(context, block),
    onTold: (event, payments) => metrics.notifications.inc({ network, event }, payments),
    onUndone: () => metrics.reorgs.inc({ network }),
    onBadRow: reportBadRow(context, network),
  })
}

/** Marks batches that were mined in a lost block as not mined. They are followed again, and either found in another block or sent again. */
export async function unmineBatches(
  context: Context,
  block: Pick<RecordedBlock, 'blockHash'>,
): Promise<boolean> {
  const { sql, served, log, metrics, checkpoint, memory } = context
  const { chainId, name } = served.network
  for (const batch of await readBatchesMinedIn(sql, chainId, block.blockHash)) {
    await checkpoint('before-reorg-recorded')
    await moveBatch(context, batch, {
      from: 'mined',
      to: 'reorged',
      async record(tx) {
        await markUnmined(tx, batch.id)
        return []
      },
      others: 'stay',
    })
    await checkpoint('after-reorg-recorded')
    memory.judged.delete(batch.id)
    metrics.reorgs.inc({ network: name })
    log.warn({ batch: batch.batchId }, 'a reorg dropped the block of a batch')
  }
  return true
}
