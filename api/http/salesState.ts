import { z } from '@hono/zod-openapi'
import type { SalesStop, SalesSwitch } from '@tollkeeper/ledger/registry/salesStop'
import * as wire from './wire.ts'

/** The operator's stop switch, as every view shows it. */
export const salesState = z
  .object({
    stopped: z.boolean().openapi({
      description: 'Whether new payments are refused (503 `sales_stopped`). Accepted payments still settle',
    }),
    reason: z.string().nullable(),
    stoppedAt: wire.isoTime.nullable(),
  })
  .openapi('Sales')

/** Converts the switch to {@link salesState}. */
export function toSalesState(stop: SalesStop | null) {
  return { stopped: stop !== null, reason: stop?.reason || null, stoppedAt: stop?.stoppedAt ?? null }
}

/** Returns the switch for answers that don't depend on the database; null if the database doesn't answer. */
export async function salesStateOf(sales: SalesSwitch) {
  return sales.read().then(toSalesState, () => null)
}
