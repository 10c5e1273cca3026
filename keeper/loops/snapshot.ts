import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { countWaitingSplitters } from '@tollkeeper/ledger/batches/sweeps'
import { readBlocked } from '@tollkeeper/ledger/queue/quarantine'
import type { QueueSnapshot } from './choose.ts'
import type { Context } from './context.ts'
import { blockedAtOnce } from './failBlocked.ts'
import { readGasPrices } from './ledgerGas.ts'
import { isTokenPaused } from './tokenPause.ts'

/** Reads what a wallet chooses its next batch by. */
export async function readSnapshot(context: Context, { address }: Lease): Promise<QueueSnapshot> {
  const { sql, served, settings, memory, now } = context
  const scope = { chainId: served.network.chainId, token: served.token }
  const due = (await isTokenPaused(context))
    ? []
    : await context.readDueBatches({ settings, from: address, now: now() })
  const platforms = [...new Set(due.map(({ group }) => group.feeRecipient))]
  const [blocked, waitingSplitters, prices] = await Promise.all([
    readBlocked(sql, scope, blockedAtOnce),
    countWaitingSplitters(sql, scope, platforms, now()),
    due.length > 0 ? readGasPrices(context) : null,
  ])
  return {
    due,
    blocked: new Set(blocked.map(({ paymentId }) => paymentId)),
    prices,
    waitingSplitters,
    turns: memory.turns.get(address) ?? [],
    isGathering: memory.pace.isGathering(address),
    pairAloneAt: memory.pairAloneAt,
    now: now(),
  }
}
