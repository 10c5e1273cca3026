import type { Database } from '../store/database.ts'
import type { TabDatabase } from './tabDatabase.ts'
import type { TabKey } from './tabStore.ts'

const reservationsAtOnce = 500

/**
 * Releases the reserved credit and the ids of tabs that were never opened, because their requests were refused or the process died before it opened
 * the tab.
 *
 * @param before releases only reservations that are older than this.
 */
export async function releaseUnopened(sql: Database, tabs: TabDatabase, before: Date): Promise<void> {
  let after: TabKey = { payer: '0x', tabId: '' }
  for (;;) {
    const old = await sql<TabKey[]>`
      select payer, tab_id as "tabId" from tab_reservation
      where reserved_at < ${before} and (payer, tab_id) > (${after.payer}, ${after.tabId})
      order by payer, tab_id limit ${reservationsAtOnce}`
    if (old.length === 0) return
    const open = await tabs.all<TabKey[]>`
      select '0x' || encode(payer, 'hex') as payer, 'tab_' || encode(id, 'hex') as "tabId" from tabs.tab
      where id = any(select decode(substr(one, 5), 'hex') from unnest(${old.map(({ tabId }) => tabId)}::text[]) one)`
    const opened = new Set(open.map(nameOf))
    const unopened = old.filter((tab) => !opened.has(nameOf(tab)))
    await sql`
      with old as materialized (
        select r.payer, r.tab_id from tab_reservation r
        join unnest(${unopened.map(({ payer }) => payer)}::text[], ${unopened.map(({ tabId }) => tabId)}::text[]) u (payer, tab_id)
          on r.payer = u.payer and r.tab_id = u.tab_id
        where r.reserved_at < ${before}
        order by r.payer, r.tab_id for update of r
      )
      delete from tab_claim c using old where c.tab_id = old.tab_id and end_reservation(old.payer, old.tab_id, 0)`
    after = old.at(-1) as TabKey
  }
}

function nameOf({ payer, tabId }: TabKey): string {
  return `${payer} ${tabId}`
}
