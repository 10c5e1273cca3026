import type { SettlementWallet, SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { prepareBatch } from './prepare.ts'
import { resendIfDue, sendOffer } from './send.ts'

/**
 * Simulates which part of a batch can be settled, signs a transaction with that part, stores it, and only then sends it.
 *
 * If the batch has no transaction yet, items that would fail leave the batch. If it has one that wasn't mined in time, this offers a higher fee for
 * the same nonce. The new transaction leaves out items that have been settled since; if no item is left, it is an empty transaction to the wallet
 * itself. The earlier transaction has been sent again several times before, so it is really stuck. If the maximum fee doesn't allow a higher offer,
 * nothing new is offered.
 *
 * @param setAside wei that the wallet needs for its other transactions in flight; 0 for a higher offer, which replaces one of them
 * @returns whether another transaction was sent
 * @throws {Unfunded} if the wallet can't pay for it
 */
export async function offer(
  context: SettlerContext,
  wallet: SettlementWallet,
  open: OpenBatch,
  setAside = 0n,
): Promise<boolean> {
  const { served, log, checkpoint, metrics } = context
  const isFirst = open.offers.length === 0
  const began = performance.now()
  if (isFirst) await checkpoint('before-simulation')
  const prepared = await prepareBatch(context, open, setAside)
  if (prepared.status === 'at_fee_cap') {
    if (prepared.before) await resendIfDue(context, prepared.before)
    return false
  }
  if (isFirst) await checkpoint('after-simulation')
  const { plan, dropped, refused } = prepared
  if (isFirst && !plan) {
    await open.close({ result: 'nothing_left', failure: refused ?? 'authorization_used', drops: dropped })
    log.info(
      { batch: open.batch.batchId, dropped: dropped.length },
      'no payment of the batch can be settled now',
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
