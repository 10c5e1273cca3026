import type { Address } from 'viem'
import type { Database } from '#keeper/store/database'
import { halves } from '#keeper/store/halves'

export type TopPayer = {
  chainId: number
  payer: Address
  payments: number
  gross: bigint
  /** Of the provider's part, what has arrived. */
  settledNet: bigint
  lastAcceptedAt: Date
}

/**
 * Who paid a provider most, all time, voided payments aside.
 *
 * A payer is either among the greatest of the sums or has payments that are not in the sums yet: only these are looked at.
 */
export async function findTopPayers(
  sql: Database,
  indexerSchema: string,
  { providerId, chainId, limit }: { providerId: string; chainId?: number | undefined; limit: number },
): Promise<TopPayer[]> {
  const onChain = chainId === undefined ? sql`` : sql`and chain_id = ${chainId}`
  return sql<TopPayer[]>`
    with open as (
      select p.chain_id, p.payer, sum(share.payments) as payments, sum(share.gross) as gross,
        sum(share.settled_net) as settled_net, max(p.accepted_at) as last_accepted_at
      from payment p
      cross join lateral (
        select state from ${halves(sql, indexerSchema)} h where h.payment_id = p.id and h.half = 0
      ) provider
      cross join lateral revenue_share(p.provider_amount, p.fee_amount, (case when provider.state = 'settled' then 1 else 0 end)
        + (case when p.voided_at is null then 0 else 4 end)) share
      where p.provider_id = ${providerId} and p.summarised is null ${onChain}
      group by p.chain_id, p.payer
    ), candidate as (
      (select chain_id, payer from payer_revenue where provider_id = ${providerId} ${onChain}
        order by gross desc, chain_id, payer limit ${limit})
      union
      select chain_id, payer from open
    )
    select c.chain_id as "chainId", c.payer,
      (coalesce(r.payments, 0) + coalesce(o.payments, 0))::int as payments,
      coalesce(r.gross, 0) + coalesce(o.gross, 0) as gross,
      coalesce(r.settled_net, 0) + coalesce(o.settled_net, 0) as "settledNet",
      greatest(r.last_accepted_at, o.last_accepted_at) as "lastAcceptedAt"
    from candidate c
    left join payer_revenue r on r.provider_id = ${providerId} and r.chain_id = c.chain_id and r.payer = c.payer
    left join open o on o.chain_id = c.chain_id and o.payer = c.payer
    where coalesce(r.payments, 0) + coalesce(o.payments, 0) > 0
    order by gross desc, c.chain_id, c.payer
    limit ${limit}`
}
