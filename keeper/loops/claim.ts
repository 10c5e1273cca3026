import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { rememberTurn } from '@tollkeeper/ledger/queue/lanes'
import type { LaneInFlight } from '../settler/batchCut.ts'
import { planClaims } from './choose.ts'
import type { Context } from './context.ts'
import { readSnapshot } from './snapshot.ts'
import { writePlan } from './writePlan.ts'

/** Maximum number of reads of the queue in one step. A step reads the queue again if someone else has settled all payments of the planned batch. */
const maxLooks = 50

/**
 * Claims the next batch for a wallet, if a trigger has fired or something was submitted. A process's wallets claim one after the other: if two
 * wallets read the queue at once, both would plan the same payments, and one would end up without a batch.
 *
 * The index must be current, because a payment that is open in the index is planned as open until the simulation on the chain shows otherwise.
 *
 * @param inFlight the wallet's batches that aren't mined yet. Default: none.
 */
export function claimNext(
  context: Context,
  lease: Lease,
  inFlight: readonly LaneInFlight[] = [],
): Promise<BatchRow | null> {
  const { memory } = context
  const claimed = memory.lastClaim.then(() => claimDue(context, lease, inFlight))
  memory.lastClaim = claimed.catch(() => {})
  return claimed
}

async function claimDue(
  context: Context,
  lease: Lease,
  inFlight: readonly LaneInFlight[],
): Promise<BatchRow | null> {
  const { memory, gasPolicy, checkpoint } = context
  await checkpoint('before-claim')
  // If someone else has settled payments of a plan, `writePlan` removes them from the queue, and the plan may end up without payments. Then read the
  // queue and check its triggers again.
  for (let looks = 0; looks < maxLooks; looks++) {
    const snapshot = await readSnapshot(context, lease, inFlight)
    let hasMoved = false
    for (const plan of planClaims(snapshot, gasPolicy)) {
      const written = await writePlan(context, lease, plan)
      if (written.batch) {
        memory.turns.set(lease.address, rememberTurn(snapshot.turns, plan.due.lane))
        if (plan.isPairAlone) memory.pairAloneAt = snapshot.now.getTime()
        await checkpoint('after-claim')
        return written.batch
      }
      hasMoved ||= written.hasMoved
    }
    if (!hasMoved) return null
  }
  return null
}
