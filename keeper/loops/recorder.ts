import { findMined } from '#chain/receipts'
import { lockBatch, readBatchesMinedIn, setBatchState } from '#ledger/batches/batches'
import { markMined, markUnmined, readTransactions } from '#ledger/batches/transactions'
import type { RecordedBlock } from '#ledger/facts/record'
import { createRecorder, type Recorder, type RecorderOptions } from '#ledger/outcomes/recorder'
import type { Context } from './context.ts'

/** The record of a network, and what follows for our batches where a reorg takes a block of theirs. */
export function createKeeperRecorder(
  context: Context,
  options: Pick<RecorderOptions, 'lookEveryMs'> = {},
): Recorder {
  const { sql, served, finalityBlocks, log, metrics, checkpoint } = context
  const network = served.network.name
  return createRecorder({
    ...{ sql, served, finalityBlocks, log, checkpoint, ...options },
    onGone: (block) => unmineBatches(context, block),
    onTold: (event, payments) => metrics.notifications.inc({ network, event }, payments),
    onUndone: () => metrics.reorgs.inc({ network }),
  })
}

/** Batches that were mined in a block that is gone: mined elsewhere, or sent again. */
async function unmineBatches(context: Context, block: RecordedBlock): Promise<boolean> {
  const { sql, served, log, metrics, checkpoint, memory } = context
  const { chainId, name } = served.network
  for (const batch of await readBatchesMinedIn(sql, chainId, block.blockHash)) {
    const hashes = (await readTransactions(sql, batch.id)).map(({ hash }) => hash)
    const found = await findMined(served.clients, hashes)
    await checkpoint('before-reorg-recorded')
    await sql.begin(async (tx) => {
      if (!(await lockBatch(tx, batch.id, 'mined'))) return
      await markUnmined(tx, batch.id)
      if (found) {
        const { blockNumber, blockHash, status } = found.receipt
        await markMined(tx, found.hash, { blockNumber, blockHash, succeeded: status === 'success' })
      } else await setBatchState(tx, batch.id, 'reorged')
    })
    await checkpoint('after-reorg-recorded')
    memory.judged.delete(batch.id)
    metrics.reorgs.inc({ network: name })
    log.warn(
      { batch: batch.batchId, minedAgain: found?.hash ?? null },
      'a reorg dropped the block of a batch',
    )
  }
  return true
}
