import type { GasPrices } from '@tollkeeper/chain/gasShares'
import { setHold } from '@tollkeeper/ledger/batches/holds'
import { drawGas, isInBudget } from '@tollkeeper/ledger/queue/gasDraws'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { createGasControl, type GasControl } from '../settler/gasControl.ts'
import type { GasDraw } from '../settler/gasPolicy.ts'
import type { Context } from './context.ts'

/** Time in ms for which a network is marked as waiting for cheaper gas. Each read of the prices renews the mark, so a dead keeper's mark expires. */
const priceHoldMs = 60_000

/** Creates the control that approves gas by the budgets in the database. */
export function createLedgerGasControl(context: Context): GasControl {
  const { sql, served, settings, gasPolicy: policy, meter, now } = context
  const draw = (draws: readonly GasDraw[]) => drawFromLedger(context, sql, draws)
  // Nothing is reserved for sweeps: bookGas charges their cost to the budget once they are mined.
  const drawForSweeps = (amount: bigint) =>
    isInBudget(sql, served.network.chainId, { amount, budget: budgetOf(settings), now: now() })
  return createGasControl({ meter, policy, draw, drawForSweeps, now })
}

/** Reserves gas for payments in the database. Returns for each draw whether there was enough. */
export async function drawFromLedger(
  { served, settings, now }: Pick<Context, 'served' | 'settings' | 'now'>,
  sql: Queryable,
  draws: readonly GasDraw[],
): Promise<boolean[]> {
  const wants = draws.flatMap(({ request: { paymentId }, amount, fromBudget }) =>
    paymentId === null ? [] : { paymentId, amount, fromBudget },
  )
  const limits = { budget: budgetOf(settings), common: settings.gasAllowance }
  const drawn = await drawGas(sql, served.network.chainId, wants, limits, now())
  return draws.map(({ request: { paymentId } }) => paymentId !== null && drawn.has(paymentId))
}

/** Returns the daily budget, or null if there is no limit. */
function budgetOf({ dailyBudget }: Context['settings']): bigint | null {
  return dailyBudget === 0n ? null : dailyBudget
}

/** Reads the prices of gas. While they are too high to send anything, the network is marked as waiting for cheaper gas. */
export async function readGasPrices(context: Context): Promise<GasPrices> {
  const { sql, served, gasPolicy, meter, memory, metrics, log, now } = context
  const { chainId, name } = served.network
  const at = now().getTime()
  const prices = await meter.read()
  const isTooHigh = gasPolicy.isPriceTooHigh(prices)
  if (isTooHigh && memory.expensiveUntil < at + priceHoldMs / 2) {
    if (memory.expensiveUntil < at) {
      metrics.holds.inc({ network: name, reason: 'gas_price' })
      log.warn('waiting: the gas price is above MAX_FEE_GWEI, so nothing is sent')
    }
    memory.expensiveUntil = at + priceHoldMs
    await setHold(sql, chainId, new Date(memory.expensiveUntil))
  } else if (!isTooHigh && memory.expensiveUntil > 0) {
    memory.expensiveUntil = 0
    await setHold(sql, chainId, null)
  }
  return prices
}
