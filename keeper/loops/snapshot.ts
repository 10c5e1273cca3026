import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { countWaitingSplitters } from '@tollkeeper/ledger/batches/sweeps'
import { readBlocked } from '@tollkeeper/ledger/queue/quarantine'
import type { QueueSnapshot } from './choose.ts'
import type { Context } from './context.ts'
import { readGasPrices } from './ledgerGas.ts'
import { isTokenPaused } from './tokenPause.ts'

/** Maximum number of payments of blocked payers in a snapshot. */
const blockedAtOnce = 100

/** Reads what a wallet chooses its next batch by. */
export async function readSnapshot(context: Context, { address }: Lease): Promise<QueueSnapshot> {
  const { sql, served, settings, memory, now } = context
  const scope = { chainId: served.network.chainId, token: served.token }
  const [blocked, due] = await Promise.all([
    readBlocked(sql, scope, blockedAtOnce),
    isTokenPaused(context).then((isPaused) =>
      isPaused ? [] : context.readDueBatches({ settings, from: address, now: now() }),
    ),
  ])
  const platforms = [...new Set(due.map(({ group }) => group.feeRecipient))]
  const [waitingSplitters, prices] = await Promise.all([
    countWaitingSplitters(sql, scope, platforms, now()),
    due.length > 0 ? readGasPrices(context) : null,
  ])
  return {
    due,
    blocked,
    prices,
    waitingSplitters,
    turns: memory.turns.get(address) ?? [],
    isGathering: memory.pace.isGathering(address),
    pairAloneAt: memory.pairAloneAt,
    now: now(),
  }
}
