import type { Hash } from 'viem'
import { findMined } from '#chain/receipts'
import { raiseActedBlock } from '#ledger/indexedHead'
import { followIndexHoles } from '#ledger/indexHoles'
import type { IndexState } from '#ledger/indexState'
import {
  moveNotifiedBlock,
  type NotificationScope,
  notifyBatches,
  notifyReverted,
  notifySettled,
  readNotifiedBlock,
  readUnconfirmed,
} from '#ledger/notifications'
import { confirmBlocks } from './confirm.ts'
import type { Context } from './context.ts'
import { planRescan } from './rescan.ts'

const atOnce = 500

/**
 * Tells providers what the chain shows of their payments, settled by whomever, once it has its network's confirmations;
 * and that it was taken back, where a reorg went deeper than these. Nothing is said on the word of an index that is behind.
 */
export function createNotifier(context: Context) {
  const { sql, served } = context
  const { chainId, name: network, confirmations } = served.network
  let done = ''

  return async function notify(index: IndexState): Promise<void> {
    if (index.status !== 'current') return
    const { blockNumber: head } = index.head
    const upTo = head - BigInt(confirmations)
    const notified = await readNotifiedBlock(sql, chainId)
    // Nothing changes without a new block. A reorg that ends at the same height shows with the next one.
    const state = `${head} ${notified}`
    if (upTo < 0n || state === done) return
    // It is notified from there, at the next step.
    if (await followIndexHoles(sql, chainId)) return
    const { after, done: rescanned } = planRescan(context, 'notify', notified < upTo ? notified : upTo, head)
    const scope = { chainId, network, after: after > 0n ? after : 0n, upTo }
    if (!(await confirmBlocks(context, scope))) return
    if (await notifyTakenBack(context, scope)) return
    if (!(await notifyUpTo(context, scope, notified))) return
    done = `${head} ${upTo}`
    rescanned()
  }
}

/** @returns whether there is more to be taken back: nothing is passed over, however deep the reorg was. */
async function notifyTakenBack(context: Context, scope: NotificationScope): Promise<boolean> {
  const { sql, served, log, metrics } = context
  const gone: string[] = []
  const doubtful = await readUnconfirmed(sql, scope, atOnce)
  for (const { paymentId, hashes } of doubtful) {
    // The chain has the last word: where one of them stands, the index is about to change.
    if (await findGone(context, hashes)) gone.push(paymentId)
  }
  if (gone.length === 0) return false
  await notifyReverted(sql, scope.network, gone)
  metrics.notifications.inc({ network: served.network.name, event: 'payment.reverted' }, gone.length)
  log.warn({ payments: gone }, 'told as settled, and taken back by a reorg')
  return doubtful.length === atOnce
}

/** Whether one of the transactions is nowhere mined; throws while an RPC that might know doesn't answer. */
async function findGone({ served }: Context, hashes: readonly Hash[]): Promise<boolean> {
  for (const hash of hashes) {
    const mined = await findMined(served.clients, [hash])
    if (mined?.receipt.status !== 'success') return true
  }
  return false
}

/** @returns false where there is more than was said now. */
async function notifyUpTo(context: Context, scope: NotificationScope, notified: bigint): Promise<boolean> {
  const { sql, served, metrics } = context
  const { chainId, upTo } = scope
  const { name: network } = served.network
  return sql.begin(async (tx) => {
    const blocks = await notifySettled(tx, scope, atOnce)
    for (const block of new Set(blocks)) await raiseActedBlock(tx, chainId, block)
    metrics.notifications.inc({ network, event: 'payment.settled' }, blocks.length)
    if (blocks.length === atOnce) return false
    await notifyBatches(tx, scope)
    await moveNotifiedBlock(tx, chainId, notified, upTo)
    return true
  }) as Promise<boolean>
}
