import { halves } from '../facts/halves.ts'
import type { Queryable } from '../store/database.ts'

/**
 * Failures that are the payer's fault. A payment that ends with one of them was served and is still owed.
 *
 * `account_blacklisted` isn't among them, because the token doesn't say whether it means payer or payee. Nor is `authorization_expired`: if a
 * payment expires after a failed attempt, it keeps the attempt's code. So `authorization_expired` always means that we didn't settle in time.
 */
const payerFaultCodes = [
  'authorization_cancelled',
  'authorization_used',
  'insufficient_balance',
  'invalid_signature',
] as const

/**
 * Returns the authorizations (halves of payments) that payers owe through their own fault: the payer cancelled the authorization or used it for
 * something else, or the authorization failed because the balance was too low or the signature invalid. This is the only definition of bad debt.
 *
 * The payer of a tab owes the charged amount, which may be less than the signed amount. If the payer settled another state of the tab, it owes what
 * is missing on each line. If the payer settled the tab under other terms, for example with another platform, it also owes the platform's part that
 * went elsewhere. Nothing is owed for payments through the facilitator, because their sellers serve only after settlement.
 *
 * The result is a fragment for a `from` clause; restrict it by `chain_id`, `token` and `payer`. Columns: `payment_id`, `half`, `value`, and `code`
 * (one of {@link payerFaultCodes}). A half is no longer listed once it has moved after all, or once its payment is requeued or forgiven.
 *
 * @param payer a column of the surrounding statement, if only this payer's debts are needed. The planner doesn't push the restriction down to the
 * tables by itself, and would read all payments that ever failed.
 */
export function badDebt(sql: Queryable, payer?: ReturnType<typeof halves>) {
  const isTheirs = payer ? sql`payer = ${payer}` : sql`true`
  return sql`(
    select p.chain_id, p.token, p.payer, p.id as payment_id, h.half,
      case when p.source = 'tab'
        then (
          select sum(greatest(0, l.charged - coalesce(l.moved, 0)) + trunc(trunc(
            least(l.moved, l.charged)::numeric * l.platform_share / greatest(1, l.provider_share::numeric + l.platform_share)
          ) * lost.share / 10000))
          from tab_line l
          cross join lateral (
            select coalesce(max(e.lost_fee_share), 0) as share from authorization_event e
            where e.payment_id = p.id and e.half = h.half
          ) lost
          where l.payment_id = p.id
        )
        else h.value
      end as value,
      case h.state
        when 'cancelled' then 'authorization_cancelled'
        when 'foreign_use' then 'authorization_used'
        else suspect.code
      end as code
    from (
      select payer, payment_id, null as code from queue where ${isTheirs}
      union all
      select payer, payment_id, code from payment_result where kind <> 'voided' and final_at is null and ${isTheirs}
      union all
      select payer, payment_id, code from payment_result
      where kind <> 'voided' and final_at is not null and code is not null and ${isTheirs}
    ) suspect
    join payment p on p.id = suspect.payment_id and p.payer = suspect.payer
    join lateral ${halves(sql)} h on h.payment_id = p.id
    where p.source in ('gateway', 'tab')
      and not exists (select from forgiven_debt f where f.payment_id = p.id)
      and (
        h.state in ('cancelled', 'foreign_use')
        or h.state = 'open' and suspect.code in ${sql(payerFaultCodes)}
      )
  )`
}

type Fragment = ReturnType<typeof halves>

/**
 * Returns a payer's debt to one provider: the provider's unpaid part of served sales, if the payer is at fault, less the amount that the platform
 * bears. The result is a scalar subquery, in USDC base units.
 *
 * It reads only this provider's sales, so a provider can't see what the payer bought from other providers.
 *
 * @param payer a column of the surrounding statement, like `chainId`.
 */
export function owedTo(
  sql: Queryable,
  providerId: string,
  { payer, chainId }: Record<'payer' | 'chainId', Fragment>,
) {
  return sql`(
    select coalesce(sum(lost.amount), 0) from (
      select sum(share.failed_net) - coalesce((
        select sum(c.amount) from covered_default c where c.payment_id = debt.payment_id and c.provider_id = ${providerId}
      ), 0) as amount
      from (
        select distinct bad.payment_id from ${badDebt(sql, payer)} bad where bad.chain_id = ${chainId} and bad.payer = ${payer}
      ) debt
      cross join lateral (
        select s.*, s as sold from sale s
        where s.payment_id = debt.payment_id and s.provider_id = ${providerId} offset 0
      ) s
      cross join lateral settled_halves(s.payment_id, s.fee_half) half
      cross join lateral sale_share(s.sold, false, half.settled) share
      group by debt.payment_id
    ) lost
  )`
}
