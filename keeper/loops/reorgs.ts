import type { Hash } from 'viem'
import { findMined } from '#chain/receipts'
import { lockBatch, readBatchesMinedIn, setBatchState } from '#ledger/batches'
import {
  dropEvidence,
  dropIndexedEvidence,
  finishEvidence,
  type ReliedBlock,
  readReliedBlocks,
} from '#ledger/evidence'
import type { IndexState } from '#ledger/indexState'
import { isStillIndexed, readConfirmedBlocks, undoConclusions } from '#ledger/reopen'
import { markMined, markUnmined, readTransactions } from '#ledger/transactions'
import { ChainUnavailable } from '#process/dependencies'
import type { Context } from './context.ts'

/** How many confirmed blocks are held against the chain at once, when the newest one is gone. */
const confirmedAtOnce = 20
/** How often the chain is looked at while something could still be taken back, and while all is final. */
const lookEveryMs = { unconfirmed: 1_000, final: 30_000 }

/**
 * Holds the blocks that we have acted on against the chain, as far as they can have changed since the last look: what they
 * showed is dropped when they are gone, and final when they are deep enough.
 *
 * Throws while an RPC fails: nothing is concluded from that.
 *
 * @returns up to which block everything is final; null while a reorg isn't followed to its end.
 */
export async function followReorgs(context: Context, index: IndexState): Promise<bigint | null> {
  const { sql, served, memory, finalityBlocks } = context
  const scope = { chainId: served.network.chainId, token: served.token }
  const before = memory.look
  const relied = await readReliedBlocks(sql, scope)
  const at = performance.now()
  const patienceMs = relied.length > 0 ? lookEveryMs.unconfirmed : lookEveryMs.final
  if (before !== null && at - before.at < patienceMs) return before.safeBlock

  memory.look = null
  const head = await served.client.getBlock()
  const hasGrown = before !== null && (await isSameChain(context, before, head))
  if (!hasGrown) memory.replacedUpTo = before && before.number > head.number ? before.number : head.number
  const safeBlock = index.status === 'current' ? index.head.blockNumber - finalityBlocks : -1n
  for (const block of relied) {
    const isNew = !hasGrown || block.blockNumber > before.number
    const isDeep = block.blockNumber <= safeBlock
    if (block.blockNumber > head.number || !(isNew || isDeep)) continue
    if (!(await stands(context, block))) {
      if (!(await dropBlock(context, block))) return null
    } else if (isDeep) await finishEvidence(sql, scope.chainId, block)
  }
  if (!(await undoLost(context, index, head.number, hasGrown ? before.number : -1n))) return null
  if (index.status === 'current') await dropIndexedEvidence(sql, scope)
  memory.look = { number: head.number, hash: head.hash, safeBlock, at }
  return safeBlock
}

/** Whether a head continues the chain of an earlier one. Where that can't be told, everything is looked at anew. */
async function isSameChain(
  context: Context,
  before: { number: bigint; hash: Hash },
  head: { number: bigint; hash: Hash; parentHash: Hash },
): Promise<boolean> {
  if (head.hash === before.hash || head.parentHash === before.hash) return true
  return (
    head.number > before.number &&
    (await stands(context, { blockNumber: before.number, blockHash: before.hash }))
  )
}

export async function stands({ served }: Context, { blockNumber, blockHash }: ReliedBlock): Promise<boolean> {
  return (await served.client.getBlock({ blockNumber })).hash === blockHash
}

/** @returns false while an RPC that might know where its transactions are doesn't answer. */
async function dropBlock(context: Context, block: ReliedBlock): Promise<boolean> {
  const { sql, served, log, metrics, checkpoint, memory } = context
  const { chainId, name } = served.network
  for (const batch of await readBatchesMinedIn(sql, chainId, block.blockHash)) {
    const hashes = (await readTransactions(sql, batch.id)).map(({ hash }) => hash)
    let found: Awaited<ReturnType<typeof findMined>>
    try {
      found = await findMined(served.clients, hashes)
    } catch (error) {
      if (error instanceof ChainUnavailable) return false
      throw error
    }
    await checkpoint('before-reorg-recorded')
    await sql.begin(async (tx) => {
      if (!(await lockBatch(tx, batch.id, 'mined'))) return
      await dropEvidence(tx, chainId, block)
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
  const dropped = await sql.begin((tx) => dropEvidence(tx, chainId, block))
  if (dropped > 0) log.warn({ block: block.blockHash, dropped }, 'a reorg dropped evidence of uses')
  return true
}

/**
 * Takes back conclusions whose blocks are gone: a reorg was deeper than we wait for. The blocks in which settlements were
 * confirmed tell: if the newest one stands, all of them do.
 *
 * @param stood Up to here all of them are known to stand.
 * @returns false while it can't be told, or the index still shows what is gone: nothing can be concluded.
 */
async function undoLost(context: Context, index: IndexState, head: bigint, stood: bigint): Promise<boolean> {
  const { sql, served, log, metrics, checkpoint } = context
  const { chainId, name } = served.network
  const gone: ReliedBlock[] = []
  let fork = stood
  for (;;) {
    const between = { above: fork, below: gone.at(-1)?.blockNumber }
    const limit = gone.length === 0 ? 1 : confirmedAtOnce
    const confirmed = await readConfirmedBlocks(sql, chainId, { ...between, limit })
    if (confirmed.length === 0) break
    for (const block of confirmed) {
      // The node that answers isn't there yet.
      if (block.blockNumber > head) return false
      if (await stands(context, block)) {
        fork = block.blockNumber
        break
      }
      gone.push(block)
      if (index.status !== 'current' || (await isStillIndexed(sql, chainId, block))) return false
    }
  }
  if (gone.length === 0) return true
  await checkpoint('before-conclusions-undone')
  const undone = await sql.begin((tx) => undoConclusions(tx, chainId, fork, gone))
  await checkpoint('after-conclusions-undone')
  metrics.reorgs.inc({ network: name })
  log.error(
    { fork: `${fork}`, blocks: gone.length, payments: undone },
    'a reorg took confirmed blocks: looked at anew',
  )
  // What evidence is final no more is to be looked at, too.
  return false
}
