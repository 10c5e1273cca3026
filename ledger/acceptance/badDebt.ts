import { halves } from '../facts/halves.ts'
import type { Queryable } from '../store/database.ts'

/**
 * Failures of the payer's own making. A payment that ends with one of them was served and is still owed.
 *
 * `account_blacklisted` isn't among them: the token doesn't say whether payer or payee is meant. Nor is
 * `authorization_expired`: a payment whose last attempt failed for the payer's fault keeps that failure's code when it
 * expires, so what expired by itself was ours to settle in time.
 */
const payerFaultCodes = [
  'authorization_cancelled',
  'authorization_used',
  'insufficient_balance',
  'invalid_signature',
] as const

/**
 * The halves that their payers owe for a fault of their own: cancelled, used for something else, or given up because the
 * balance was short or the signature bad. The one definition of bad debt.
 *
 * Of a tab of which another state moved, they owe what that lacks on each line. What came through the facilitator isn't owed to us: its seller serves only what is settled.
 *
 * A fragment for a `from` clause; restrict it by `chain_id`, `token` and `payer`. Columns: `payment_id`, `half`, `value`,
 * and `code` (one of {@link payerFaultCodes}). A half that moves after all, or whose payment is queued again or forgiven,
 * is no longer among them.
 */
export function badDebt(sql: Queryable) {
  return sql`(
    select p.chain_id, p.token, p.payer, p.id as payment_id, h.half,
      case when p.source = 'tab' and h.state = 'foreign_use'
        then h.value - (
          select coalesce(sum(least(l.moved, l.amount)), 0) from tab_line l where l.payment_id = p.id and l.moved is not null
        )
        else h.value
      end as value,
      case h.state
        when 'cancelled' then 'authorization_cancelled'
        when 'foreign_use' then 'authorization_used'
        else suspect.code
      end as code
    from (
      select payer, payment_id, null as code from queue
      union all
      select payer, payment_id, code from outcome where kind <> 'voided' and final_at is null
      union all
      select payer, payment_id, code from outcome where kind <> 'voided' and final_at is not null and code is not null
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
