import type { Lease } from '@tollkeeper/ledger/batches/leases'
import { countWaitingSplitters } from '@tollkeeper/ledger/batches/sweeps'
import type { QueueSnapshot } from './choose.ts'
import type { Context } from './context.ts'
import { readGasPrices } from './ledgerGas.ts'
import { isTokenPaused } from './tokenPause.ts'

/** Reads what a wallet chooses its next batch by. */
export async function readSnapshot(
  context: Context,
  { address }: Lease,
  blocked: QueueSnapshot['blocked'],
): Promise<QueueSnapshot> {
  const { sql, served, settings, memory, now } = context
  const scope = { chainId: served.network.chainId, token: served.token }
  const due = (await isTokenPaused(context))
    ? []
    : await context.readDueBatches({ settings, from: address, now: now() })
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
