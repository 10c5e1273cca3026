import { utcDay } from '@tollkeeper/sdk/protocol/time'
import type { Database } from '../store/database.ts'
import type { TabDatabase } from './tabDatabase.ts'

// Figures about tabs that an operator monitors. Networks without tabs are left out.

type OnNetwork = { chainId: number; value: number }

/** Counts the tabs that accept requests. */
export function countOpenTabs({ all: sql }: TabDatabase): Promise<OnNetwork[]> {
  return sql<OnNetwork[]>`
    select chain_id as "chainId", count(*)::int as value from tabs.tab where closed_at is null group by 1`
}

/** Reads the age in seconds of the oldest closed tab that the ledger has not imported. */
export function readOldestClosed({ all: sql }: TabDatabase): Promise<OnNetwork[]> {
  return sql<OnNetwork[]>`
    select chain_id as "chainId", greatest(0, extract(epoch from now() - min(closed_at)))::float8 as value
    from tabs.tab where closed_at is not null and taken_at is null group by 1`
}

/** Counts the closed tabs that could not be imported so far. */
export function countFailedTabs({ all: sql }: TabDatabase): Promise<OnNetwork[]> {
  return sql<OnNetwork[]>`
    select chain_id as "chainId", count(*)::int as value
    from tabs.tab where closed_at is not null and taken_at is null and retries > 0 group by 1`
}

/** Reads the loans of tabs from a day's budgets, in USDC base units. */
export async function readTabBudgets(
  sql: Database,
  now: Date,
): Promise<{ money: 'real' | 'test'; lent: bigint }[]> {
  return sql<{ money: 'real' | 'test'; lent: bigint }[]>`
    select kind.money, coalesce(b.lent, 0) as lent
    from (values ('real'), ('test')) kind (money)
    left join tab_budget b on b.money = kind.money and b.day = ${utcDay(now)}::date`
}
