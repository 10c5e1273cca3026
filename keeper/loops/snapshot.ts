import { gasCutOf } from '@tollkeeper/chain/gas'
import { findBehindOwnPayer } from '@tollkeeper/ledger/batches/batches'
import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { countWaitingSplitters } from '@tollkeeper/ledger/batches/sweeps'
import { readBlocked } from '@tollkeeper/ledger/queue/isolation'
import type { Lane } from '@tollkeeper/ledger/queue/lanes'
import { type LaneInFlight, mayBeginLane } from '../settler/batchCut.ts'
import type { QueueSnapshot } from './choose.ts'
import type { Context } from './context.ts'
import { blockedAtOnce } from './failBlocked.ts'
import { readGasPrices } from './ledgerGas.ts'
import { isTokenPaused } from './tokenPause.ts'

/**
 * Reads the state from which a wallet plans its next claim.
 *
 * @param inFlight the wallet's batches that aren't mined yet
 */
export async function readSnapshot(
  context: Context,
  { address }: Lease,
  inFlight: readonly LaneInFlight[],
): Promise<QueueSnapshot> {
  const { sql, served, settings, memory, now } = context
  const scope = { chainId: served.network.chainId, token: served.token }
  const gasCut = gasCutOf(served.network)
  const mayBegin = (lane: Lane) => mayBeginLane(lane, inFlight, gasCut)
  const due = (await isTokenPaused(context))
    ? []
    : await context.readDueBatches({ settings, from: address, mayBegin, now: now() })
  const platforms = [...new Set(due.map(({ group }) => group.feeRecipient))]
  const ofPayersWithCode = due.flatMap(({ lane, payments }) =>
    lane === 'high_value' ? payments.filter(({ hasCode }) => hasCode).map(({ id }) => id) : [],
  )
  const [blocked, behindOwnPayer, waitingSplitters, prices] = await Promise.all([
    due.length > 0 ? readBlocked(sql, scope, blockedAtOnce) : [],
    findBehindOwnPayer(sql, scope, ofPayersWithCode),
    countWaitingSplitters(sql, scope, platforms, now()),
    due.length > 0 ? readGasPrices(context) : null,
  ])
  return {
    due,
    blocked: new Set(blocked.map(({ paymentId }) => paymentId)),
    behindOwnPayer,
    inFlight,
    prices,
    waitingSplitters,
    turns: memory.turns.get(address) ?? [],
    isGathering: memory.pace.isGathering(address),
    pairAloneAt: memory.pairAloneAt,
    gasCut,
    now: now(),
  }
}
