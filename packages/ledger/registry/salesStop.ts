import { createCache } from '@tollkeeper/runtime/cache'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import type { Queryable } from '../store/database.ts'

// The operator's stop switch. Its last row in `sales_change` says whether new payments are accepted. accept_payments reads it in the
// transaction that stores payments, so the database decides. Processes also read it through a cache, to refuse a purchase before the buyer
// signs.

/** The operator's reason for stopping sales, and since when they are stopped. */
export type SalesStop = { reason: string; stoppedAt: Date }

/** A change of the switch. */
export type SalesChange = { isStopped: boolean; reason: string; changedBy: string; changedAt: Date }

/** Maximum length of a reason, in characters. Buyers read it. */
export const maxReasonLength = 200

/** Maximum delay in ms until a process sees a change. */
const ttlMs = 1_000

/** Reads the switch; null if payments are accepted. */
export async function readSalesStop(sql: Queryable): Promise<SalesStop | null> {
  const [last] = await listSalesChanges(sql, 1)
  return last?.isStopped ? { reason: last.reason, stoppedAt: last.changedAt } : null
}

/** Lists the switch's last changes, the newest first. */
export async function listSalesChanges(sql: Queryable, limit: number): Promise<SalesChange[]> {
  return sql<SalesChange[]>`
    select is_stopped as "isStopped", reason, changed_by as "changedBy", changed_at as "changedAt"
    from sales_change order by id desc limit ${limit}`
}

/** Stops sales, or starts them again, and records who did. Stopping sales again replaces the reason. */
export async function changeSales(
  sql: Queryable,
  { isStopped, reason, changedBy }: Omit<SalesChange, 'changedAt'>,
): Promise<void> {
  await sql`
    insert into sales_change (is_stopped, reason, changed_by) values (${isStopped}, ${reason}, ${changedBy})`
}

/** A process's cached view of the switch. */
export type SalesSwitch = {
  /** Returns the switch's state, which is at most one second old. */
  read: () => Promise<SalesStop | null>
  /** @throws {BaseError} `sales_stopped` */
  requireOpen: () => Promise<void>
}

/**
 * Watches the switch through a cache, so that most requests cost no query. If a process can't read the switch, it accepts nothing: the
 * query's error is thrown.
 */
export function createSalesSwitch(sql: Queryable): SalesSwitch {
  const cache = createCache<'sales', SalesStop | null>({
    load: () => readSalesStop(sql),
    ttlMs,
    refreshAfterMs: ttlMs / 2,
    max: 1,
    now: () => performance.now(),
  })
  const read = async () => cache.get('sales')
  return {
    read,
    async requireOpen() {
      const stop = await read()
      if (stop !== null) throw salesStopped(stop)
    },
  }
}

/** Creates the error for a new payment while sales are stopped. */
export function salesStopped(stop?: SalesStop): BaseError {
  if (stop === undefined) return new BaseError('sales_stopped')
  const { reason, stoppedAt } = stop
  const detail = `The operator has stopped sales${reason === '' ? '' : `: ${reason}`}. Nothing was charged`
  return new BaseError('sales_stopped', detail, {
    details: { reason, stopped_at: stoppedAt.toISOString() },
  })
}
