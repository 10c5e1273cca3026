import { halves } from '../facts/halves.ts'
import type { Queryable } from '../store/database.ts'

/**
 * Failures that are the payer's fault. A payment that ends with one of them was served and is still owed.
 *
 * `account_blacklisted` isn't among them, because the token doesn't say whether it means payer or payee. Nor is
 * `authorization_expired`: a payment that expires after a failed attempt keeps that attempt's code, so one with this code
 * expired because we didn't settle it in time.
 */
const payerFaultCodes = [
  'authorization_cancelled',
  'authorization_used',
  'insufficient_balance',
  'invalid_signature',
] as const

/**
 * The halves that payers owe through their own fault: cancelled, used for something else, or given up because the
 * balance was too low or the signature bad. The one definition of bad debt.
 *
 * Of a tab they owe what was charged, which may be less than the signed amount; if another state of it moved, what that lacks on each
 * line; if it moved under other terms, such as another platform, also the platform's part that went elsewhere. Facilitated payments owe
 * nothing: sellers serve once settled.
 *
 * A fragment for a `from` clause; restrict it by `chain_id`, `token` and `payer`. Columns: `payment_id`, `half`, `value`,
 * and `code` (one of {@link payerFaultCodes}). A half leaves the list when it moves after all, or when its payment is queued
 * again or forgiven.
 *
 * @param payer a column of the statement around, if only this payer's are wanted: the planner doesn't pass the restriction on to the
 *   tables by itself, and would read all that ever failed.
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
      select payer, payment_id, code from outcome where kind <> 'voided' and final_at is null and ${isTheirs}
      union all
      select payer, payment_id, code from outcome
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
