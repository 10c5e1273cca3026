import type { Database, Queryable } from '../store/database.ts'
import type { TabCharges } from './tabCharges.ts'
import type { StoredTab, TabHead } from './tabStore.ts'

/** The reason why a tab never becomes a payment; null if nothing is charged on it, so that it is voided. */
type UnpaidCode = 'tab_too_small' | 'authorization_used' | null

/** A tab that ended without a payment. */
export type UnpaidTab = TabHead &
  TabCharges &
  Pick<StoredTab, 'sequence' | 'requests' | 'openedAt'> & {
    closedAt: Date
    closeReason: string
    endedAt: Date
    code: UnpaidCode
  }

/**
 * Ends a closed tab that never becomes a payment. The charged amount permanently reduces its payer's credit. If this is called repeatedly, it
 * reduces the credit only once. The tab's row in the ledger answers queries for its payment's id after the tab store has deleted the tab.
 */
export async function endUnpaid(
  sql: Database,
  tab: StoredTab,
  { charged, feeAmount, code }: TabCharges & { code: UnpaidCode },
): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`
      insert into unpaid_tab (payment_id, tab_id, contract, platform, reward_share, sequence, requests, expires_at, close_reason,
        opened_at, closed_at, charged, fee_amount, code)
      values (${tab.paymentId}, ${tab.tabId}, ${tab.contract}, ${tab.platform}, ${tab.rewardShare}, ${tab.sequence}, ${tab.requests},
        ${tab.expiresAt}, ${tab.closeReason}, ${tab.openedAt}, ${tab.closedAt}, ${charged}, ${feeAmount}, ${code})
      on conflict do nothing`
    await tx`select from leave_unpaid(${tab.payer}, ${tab.tabId}, ${charged}::numeric)`
  })
}

/** Finds a tab that ended without a payment, by the id that its payment would have had. */
export async function findUnpaidTab(sql: Queryable, paymentId: string): Promise<UnpaidTab | undefined> {
  const [tab] = await sql<UnpaidTab[]>`
    select u.payment_id as "paymentId", u.tab_id as "tabId", c.payer, c.chain_id as "chainId", c.token, c.nonce, u.contract, u.platform,
      u.reward_share as "rewardShare", u.sequence::float8 as sequence, u.requests, u.expires_at::float8 as "expiresAt",
      u.close_reason as "closeReason", u.opened_at as "openedAt", u.closed_at as "closedAt", u.charged,
      u.fee_amount as "feeAmount", u.code, u.ended_at as "endedAt"
    from unpaid_tab u join tab_claim c on c.tab_id = u.tab_id
    where u.payment_id = ${paymentId}`
  return tab
}
