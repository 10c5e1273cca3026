import { atLeastZero } from '@tollkeeper/sdk/protocol/amount'
import { platformPart } from '@tollkeeper/sdk/protocol/tab'
import type { TabSale } from '../acceptance/takeTabs.ts'
import type { Database } from '../store/database.ts'
import { toBytes } from './tabDatabase.ts'
import { type StoredTab, tabBytes } from './tabStore.ts'

/** The charges on a tab, and the platform's part of them, in USDC base units. */
export type TabCharges = { charged: bigint; feeAmount: bigint }

/** Sums the charges on a tab's lines. The platform's part is rounded down once per line. */
export function sumCharges(lines: StoredTab['lines']): TabCharges {
  const charges = lines.map(({ split, charged }) => ({ split, amount: atLeastZero(charged) }))
  return {
    charged: charges.reduce((sum, { amount }) => sum + amount, 0n),
    feeAmount: charges.reduce((sum, { split, amount }) => sum + platformPart(split, amount), 0n),
  }
}

/**
 * Sums the charges on a tab by line, endpoint and hour, in the order of the first requests. The platform's part is rounded down once per
 * line, so each sale's share is the difference between the rounded parts before and after it.
 *
 * @param sql the tab store's server with the tab.
 */
export async function readTabSales(
  sql: Database,
  { payer, tabId, lines }: Pick<StoredTab, 'payer' | 'tabId' | 'lines'>,
): Promise<TabSale[]> {
  const rows = await sql<
    (Pick<TabSale, 'line' | 'providerId' | 'endpointId' | 'requests'> & { charged: bigint; lastAt: Date })[]
  >`
    select i.position as line, i.provider_id as "providerId", i.endpoint_id as "endpointId", count(*)::integer as requests,
      sum(coalesce(r.charged, r.price))::bigint as charged, max(r.accepted_at) as "lastAt"
    from tabs.request r
    join tabs.item i on i.payer = r.payer and i.tab_id = r.tab_id and i.number = r.item
    where r.payer = ${toBytes(payer)} and r.tab_id = ${tabBytes(tabId)} and coalesce(r.charged, r.price) > 0
    group by i.position, i.provider_id, i.endpoint_id, floor(extract(epoch from r.accepted_at) / 3600)
    order by min(r.sequence)`
  const totals = lines.map(() => 0n)
  return rows.map(({ charged, lastAt, ...sale }) => {
    const { split } = lines[sale.line] as StoredTab['lines'][number]
    const before = totals[sale.line] as bigint
    const total = before + charged
    totals[sale.line] = total
    const feeAmount = platformPart(split, total) - platformPart(split, before)
    return { ...sale, providerAmount: charged - feeAmount, feeAmount, acceptedAt: lastAt.getTime() }
  })
}
