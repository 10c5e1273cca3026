import type { Queryable } from '@tollkeeper/ledger/store/database'

/**
 * Returns a tab as the ledger has it, or undefined if it was never added. The columns, lines and sales are those of
 * the tables.
 */
export async function findTakenTab(sql: Queryable, paymentId: string) {
  const [payment] = await sql`
    select p.source, p.price as value, p.provider_amount as "providerAmount", p.fee_amount as "feeAmount", q.stage,
      t.sequence, t.requests, t.reward_share as "rewardShare", t.close_reason as "closeReason"
    from payment p join tab_payment t on t.payment_id = p.id left join queue q on q.payment_id = p.id
    where p.id = ${paymentId}`
  if (payment === undefined) return undefined
  const lines = await sql`
    select payee, amount, moved from tab_line where payment_id = ${paymentId} order by position`
  const sales = await sql`
    select provider_id as "providerId", endpoint_id as "endpointId", requests, provider_amount as "providerAmount",
      fee_amount as "feeAmount"
    from tab_sale where payment_id = ${paymentId} order by number`
  return { ...payment, lines: [...lines], sales: [...sales] }
}
