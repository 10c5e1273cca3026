import { setHold } from '@tollkeeper/ledger/batches/holds'
import type { DueBatch } from '@tollkeeper/ledger/queue/dueBatches'
import { drawGas, isInBudget } from '@tollkeeper/ledger/queue/gasDraws'
import type { QueuedPayment } from '@tollkeeper/ledger/queue/queue'
import { type HoldReason, holdPayments } from '@tollkeeper/ledger/queue/stages'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { type Ceiling, createCeiling } from '../settler/ceiling.ts'
import type { Context } from './context.ts'

/** How long we leave a payment alone when nothing pays for its gas. */
const holdMs = 15_000
/** How long "gas is too dear" holds. Each look renews it, so it ends by itself when a keeper dies. */
const dearMs = 60_000

/** What gas may be spent for, if the database says how much is left for it. */
export function createLedgerCeiling({ sql, served, settings, meter, now }: Context): Ceiling {
  const { dailyBudget, gasAllowance } = settings
  return createCeiling({
    meter,
    settings,
    async draw(draws) {
      const wants = draws.flatMap(({ spender: { paymentId }, amount, fromBudget }) =>
        paymentId === null ? [] : { paymentId, amount, fromBudget },
      )
      const limits = { budget: dailyBudget === 0n ? null : dailyBudget, common: gasAllowance }
      const drawn = await drawGas(sql, served.network.chainId, wants, limits, now())
      return draws.map(({ spender }) => spender.paymentId !== null && drawn.has(spender.paymentId))
    },
    // Not reserved: bookGas charges the budget with what sweeps have cost once they are mined.
    drawForSweeps: (amount) =>
      isInBudget(sql, served.network.chainId, {
        amount,
        budget: dailyBudget === 0n ? null : dailyBudget,
        now: now(),
      }),
    bears: 'what fees lack',
    now,
  })
}

/** Whether nothing at all is sent because gas costs more than we may offer. The network reports it meanwhile. */
export async function isTooDear(context: Context): Promise<boolean> {
  const { sql, served, memory, metrics, log, now } = context
  const { chainId, name } = served.network
  const at = now().getTime()
  const isDear = await createLedgerCeiling(context).isTooDear()
  if (isDear && memory.dearUntil < at + dearMs / 2) {
    if (memory.dearUntil < at) {
      metrics.holds.inc({ network: name, reason: 'gas_price' })
      log.warn('gas is dearer than MAX_FEE_GWEI: nothing is sent')
    }
    memory.dearUntil = at + dearMs
    await setHold(sql, chainId, new Date(memory.dearUntil))
  } else if (!isDear && memory.dearUntil > 0) {
    memory.dearUntil = 0
    await setHold(sql, chainId, null)
  }
  return isDear
}

/** The payments of a due batch whose gas something pays; the others wait, each with its reason, without a batch. */
export async function withoutHeld(
  context: Context,
  lane: DueBatch['lane'],
  payments: readonly QueuedPayment[],
): Promise<QueuedPayment[]> {
  const spenders = payments.map((payment) => ({ ...payment, paymentId: payment.id }))
  const reasons = await createLedgerCeiling(context).judge(spenders, { isWhole: lane === 'direct' })
  await holdBack(
    context,
    context.sql,
    payments.flatMap(({ id: paymentId }, index) => ({ paymentId, reason: reasons[index] ?? null })),
  )
  return payments.filter((_, index) => reasons[index] === null)
}

/** Lets payments wait for cheaper gas. If it is too dear for all of them, they don't give that as their reason. */
export async function holdBack(
  { served, metrics, now }: Context,
  sql: Queryable,
  judged: readonly { paymentId: string; reason: HoldReason | 'gas_price' | null }[],
): Promise<void> {
  const held = judged.flatMap(({ paymentId, reason }) =>
    reason === null || reason === 'gas_price' ? [] : { paymentId, reason },
  )
  const at = now()
  await holdPayments(sql, held, { until: new Date(at.getTime() + holdMs), now: at })
  for (const { reason } of held) metrics.holds.inc({ network: served.network.name, reason })
}
