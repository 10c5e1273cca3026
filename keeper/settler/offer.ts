import type { SettlementWallet, SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { prepareBatch } from './prepare.ts'
import { resendIfDue, sendOffer } from './send.ts'

/**
 * Asks the chain which part of a batch can be settled, signs that, stores the transaction, and only then sends it.
 *
 * From a claimed batch, which isn't signed yet, it drops what would fail. For a nonce that doesn't get mined it offers
 * more: the batch without what was settled meanwhile, or, if nothing is left, an empty transaction to itself. Only a real jam gets
 * this far, since the stored bytes were sent again before. If the fee cap leaves no room, it offers nothing new.
 *
 * @returns whether another transaction is out.
 * @throws {Unfunded} if the wallet can't pay for it
 */
export async function offer(
  context: SettlerContext,
  wallet: SettlementWallet,
  open: OpenBatch,
): Promise<boolean> {
  const { served, log, checkpoint, metrics } = context
  const isFirst = open.offers.length === 0
  const began = performance.now()
  if (isFirst) await checkpoint('before-simulation')
  const prepared = await prepareBatch(context, open)
  if (prepared.status === 'at_fee_cap') {
    if (prepared.before) await resendIfDue(context, prepared.before)
    return false
  }
  if (isFirst) await checkpoint('after-simulation')
  const { plan, dropped, refused } = prepared
  if (isFirst && !plan) {
    await open.close({ outcome: 'nothing_left', failure: refused ?? 'authorization_used', drops: dropped })
    log.info(
      { batch: open.batch.batchId, dropped: dropped.length },
      'nothing of the batch can be settled now',
    )
    return false
  }
  const kind = isFirst ? 'settle' : plan ? 'replacement' : 'cancellation'
  // A payment that a replacement leaves out stays in the batch: the earlier transaction may still be mined with it.
  await sendOffer(context, wallet, open, prepared, kind, isFirst ? dropped : [])
  if (!isFirst) await checkpoint('after-replacement-broadcast')
  else
    metrics.triggerToBroadcast.observe(
      { network: served.network.name },
      (open.ageMs + performance.now() - began) / 1000,
    )
  return true
}
