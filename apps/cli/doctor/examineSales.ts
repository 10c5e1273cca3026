import { readSalesStop } from '@tollkeeper/ledger/registry/salesStop'
import type { Queryable } from '@tollkeeper/ledger/store/database'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { type Check, ok, warn } from './check.ts'

export const salesCheck = 'sales'

/** Checks whether the operator has stopped sales. */
export async function examineSales(database: Queryable): Promise<Check> {
  const stop = await readSalesStop(database)
  if (stop === null) return ok(salesCheck, 'payments are accepted')
  const { reason, stoppedAt } = stop
  return warn(
    salesCheck,
    `stopped since ${stoppedAt.toISOString()}${reason === '' ? '' : `: ${reason}`}`,
    `${ownCommand} sales start`,
  )
}
