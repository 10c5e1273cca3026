import type { BatchRow } from '@tollkeeper/ledger/batches/batches'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { rememberTurn } from '@tollkeeper/ledger/queue/lanes'
import { planClaims } from './choose.ts'
import type { Context } from './context.ts'
import { readSnapshot } from './snapshot.ts'
import { writePlan } from './writePlan.ts'

/** Maximum number of looks at the queue in one step. Each may find whole batches that others settled. */
const maxLooks = 50

/**
 * Claims the next batch for a wallet, if a trigger has fired or something was submitted. A process's wallets take turns:
 * if two looked at once, both would want the same payments, and one would end up without a batch.
 *
 * The index must be current: a payment that it calls open counts as open until the chain itself is asked.
 */
export function claimNext(context: Context, lease: Lease): Promise<BatchRow | null> {
  const { memory } = context
  const claimed = memory.lastClaim.then(() => claimDue(context, lease))
  memory.lastClaim = claimed.catch(() => {})
  return claimed
}

async function claimDue(context: Context, lease: Lease): Promise<BatchRow | null> {
  const { memory, gasPolicy, checkpoint } = context
  await checkpoint('before-claim')
  // Payments that others settled leave the queue when they are found, so the triggers are checked again after each find.
  for (let looks = 0; looks < maxLooks; looks++) {
    const snapshot = await readSnapshot(context, lease)
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
