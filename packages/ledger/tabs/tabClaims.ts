import type { Queryable } from '../store/database.ts'
import type { TabKey } from './tabStore.ts'

/** Finds the tab of an id for a caller that doesn't know its payer; undefined: no tab ever had this id. */
export async function findTab(sql: Queryable, tabId: string): Promise<TabKey | undefined> {
  const [tab] = await sql<TabKey[]>`select payer, tab_id as "tabId" from tab_claim where tab_id = ${tabId}`
  return tab
}
