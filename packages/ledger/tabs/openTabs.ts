import type { TabDatabase } from './tabDatabase.ts'
import { type StoredTab, type TabRow, tabColumns, toStoredTab } from './tabStore.ts'

/** Reads tabs by the payments as which they settle, for views. */
export function createTabReads({ all: sql }: TabDatabase) {
  return {
    /** The tab that settles, or would have settled, as a payment. */
    async readByPayment(paymentId: string): Promise<StoredTab | undefined> {
      const [row] = await sql<TabRow[]>`
        select ${tabColumns(sql)} from tabs.tab t where t.payment_id = ${paymentId}`
      return row && toStoredTab(row)
    },
  }
}
