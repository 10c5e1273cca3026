import type { SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { refusalOfWhole } from './plan.ts'
import { prepareBatch } from './prepare.ts'
import { sendOffer } from './send.ts'
import type { SettlementWallet } from './wallet.ts'

/**
 * Takes a claimed batch, of which nothing is signed yet, to its first broadcast: asks the chain, drops what would fail,
 * signs, stores the transaction, and only then sends it.
 *
 * @returns whether a transaction is out.
 * @throws {Unfunded} if the wallet can't pay for it
 */
export async function settleClaimed(
  context: SettlerContext,
  wallet: SettlementWallet,
  open: OpenBatch,
): Promise<boolean> {
  const { served, log, checkpoint, metrics } = context
  const { batch } = open
  const began = performance.now()
  await checkpoint('before-simulation')
  const prepared = await prepareBatch(context, open, { pays: true })
  if (!prepared) return false
  await checkpoint('after-simulation')
  const { plan, drops, items } = prepared
  // Through POST /submit all that was asked for is settled, or nothing.
  const refused = batch.lane === 'direct' ? refusalOfWhole(items, drops) : null
  if (!plan || refused !== null) {
    await open.close({ outcome: 'nothing_left', failure: refused ?? 'authorization_used', drops })
    log.info({ batch: batch.batchId, dropped: drops.length }, 'nothing of the batch can be settled now')
    return false
  }
  await sendOffer(context, wallet, open, prepared, 'settle', drops)
  metrics.triggerToBroadcast.observe(
    { network: served.network.name },
    (open.ageMs + performance.now() - began) / 1000,
  )
  return true
}
