import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { closingTimes, createTabUpkeep, type TabUpkeepOptions } from '@tollkeeper/ledger/tabs/upkeep'
import { noBadRows } from './badRows.ts'
import type { TestGateway } from './gateway.ts'

/** Opens the upkeep of a gateway's tabs at a time in Unix milliseconds. A row that fails fails the test. */
export function openTabUpkeep(
  { database, served }: Pick<TestGateway, 'database' | 'served'>,
  now: number,
  more: Partial<TabUpkeepOptions> = {},
) {
  return createTabUpkeep({
    sql: database,
    tabs: onOnePostgres(database),
    networks: [served],
    rules: { ...closingTimes, amount: 10_000_000n },
    minimumPrices: {},
    onBadRow: noBadRows,
    now: () => new Date(now),
    ...more,
  })
}
