import type { Fees } from '#chain/fees'
import { countSweepsThatFit, estimateBatchGas } from '#chain/gas'
import type { SettlerContext } from './context.ts'
import type { OpenBatch } from './journal.ts'
import { buildPlan, type Plan, spenderOf } from './plan.ts'

/**
 * Lets a plan sweep the splitters that are due, as many as fit. Without them where its fees don't carry their gas:
 * to settle comes first, and what waits in a splitter is nobody else's.
 */
export async function addSweeps(
  { served, ceiling }: Pick<SettlerContext, 'served' | 'ceiling'>,
  { batch, readSweeps }: OpenBatch,
  plan: Plan,
  { fees, balance }: { fees: Fees; balance: bigint },
): Promise<Plan> {
  // Only the contract's other function sweeps.
  if (plan.shape.pairs > 0) return plan
  const items = plan.entries.map(({ item }) => item)
  const splitters = await readSweeps(items, countSweepsThatFit(plan.shape))
  if (splitters.length === 0) return plan
  const sweeps = { factory: served.deployment.splitterFactory, splitters }
  const swept = buildPlan(batch, plan.entries, plan.shape.hasCode, sweeps)
  const isPaid = balance >= swept.gas * fees.maxFeePerGas
  if (!isPaid) return plan
  const spenders = plan.entries.map((entry) => spenderOf(entry, plan.shape.hasCode))
  const gas = estimateBatchGas(swept.shape) - estimateBatchGas(plan.shape)
  return (await ceiling.carries(spenders, gas)) ? swept : plan
}
