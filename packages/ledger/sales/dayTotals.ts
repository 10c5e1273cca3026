import { utcDay } from '@tollkeeper/sdk/protocol/time'
import type { Queryable } from '../store/database.ts'

/** Sums over the whole gateway for one network and UTC day, in USDC base units. */
export type DayTotals = {
  chainId: number
  /** Amount of the day's final sales that arrived at providers. */
  provider: bigint
  /** Amount of these sales' fees that arrived. */
  fee: bigint
  /** Cost of the keepers' transactions that were mined on the day. */
  gas: bigint
}

/** Sums the UTC day of `now` by network, from the providers' stored sums. It reads one row for each endpoint that sold something. */
export async function sumDay(sql: Queryable, now: Date): Promise<DayTotals[]> {
  const day = utcDay(now)
  return sql<DayTotals[]>`
    select chain_id as "chainId", coalesce(sum(provider), 0) as provider, coalesce(sum(fee), 0) as fee,
      coalesce(sum(gas), 0) as gas
    from (
      select chain_id, settled_net as provider, settled_fee as fee, null::numeric as gas
      from revenue where period = 'day' and starts_at = ${day}::date at time zone 'UTC'
      union all
      select chain_id, null, null, cost from gas_cost where day = ${day}::date
    ) part
    group by chain_id`
}
