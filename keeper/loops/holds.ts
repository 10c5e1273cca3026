import { setHold } from '#ledger/batches/holds'
import type { Lane } from '#ledger/queue/lanes'
import type { Hold } from '../settler/ceiling.ts'
import type { Context } from './context.ts'

/** A batch that costs too much is looked at again after this long. */
const holdMs = 15_000

/** Lets payments wait, but for what is about to expire, and says why. */
export async function holdLanes(context: Context, { reason, isHighValue }: Hold): Promise<void> {
  const { sql, served, now, memory, metrics } = context
  const until = now().getTime() + holdMs
  // The price and the day's budget are everybody's; a batch's cost by its fees is of those that share batches with it.
  const kinds = reason === 'gas_cost' ? [isHighValue] : [false, true]
  for (const kind of kinds) {
    memory.heldUntil[kind ? 'highValue' : 'ordinary'] = until
    await setHold(sql, { chainId: served.network.chainId, isHighValue: kind, reason, until: new Date(until) })
  }
  metrics.holds.inc({ network: served.network.name, reason })
}

/** Lanes that wait for cheaper gas. */
export function heldLanes({ memory, now }: Context): Set<Lane> {
  const at = now().getTime()
  const held = new Set<Lane>()
  if (memory.heldUntil.ordinary > at)
    for (const lane of ['shared', 'code', 'quarantined'] as const) held.add(lane)
  if (memory.heldUntil.highValue > at) held.add('high_value')
  return held
}
