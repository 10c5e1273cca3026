import type { Address, Hex } from 'viem'
import type { Queryable } from '../store/database.ts'
import type { TabKey } from './tabStore.ts'

/** Finds the tab with an id for a caller that doesn't know its payer; undefined if no tab ever had this id. */
export async function findTab(sql: Queryable, tabId: string): Promise<TabKey | undefined> {
  const [tab] = await sql<TabKey[]>`select payer, tab_id as "tabId" from tab_claim where tab_id = ${tabId}`
  return tab
}

/**
 * Finds the id of the payment that a tab becomes or would have become, by the terms that its buyer signed. This works from its first
 * request on, and also after it ended unpaid.
 *
 * @param readTab reads the tab from the tab store.
 */
export async function findTabPaymentId(
  sql: Queryable,
  readTab: (tab: TabKey) => Promise<{ paymentId: string } | undefined>,
  used: { tokens: { chainId: number; token: Address }[]; payer: Address; nonce: Hex },
): Promise<string | undefined> {
  const [claimed] = await sql<(TabKey & { unpaidId: string | null })[]>`
    select c.payer, c.tab_id as "tabId", u.payment_id as "unpaidId"
    from unnest(${used.tokens.map(({ chainId }) => chainId)}::int[], ${used.tokens.map(({ token }) => token)}::text[])
      as served (chain_id, token)
    join tab_claim c on authorization_key(c.chain_id, c.token, c.payer, c.nonce)
      = authorization_key(served.chain_id, served.token, ${used.payer}, ${used.nonce})
    left join unpaid_tab u on u.tab_id = c.tab_id
    limit 1`
  if (claimed === undefined) return undefined
  const { unpaidId, ...tab } = claimed
  return unpaidId ?? (await readTab(tab))?.paymentId
}
