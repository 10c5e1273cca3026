import type { Database } from '#ledger/database'
import { halves, isUndecided } from '#ledger/halves'
import { isMissingIndex } from '#ledger/indexedHead'
import type { Logger } from '#process/log'
import { type Loop, repeat } from '#process/repeat'

/**
 * Adds payments that were concluded since to the sums that providers look at.
 *
 * Any number of processes may do it at once: each takes rows that no other has locked.
 *
 * @returns how many were added, at most `limit`
 */
export async function summarisePayments(sql: Database, { limit }: { limit: number }): Promise<number> {
  return sql.begin(async (tx) => {
    // Locked and read by two statements: the second one's snapshot is as young as the lock.
    const taken = await tx<{ id: string }[]>`
      select p.id from payment p where p.summarised is null and p.concluded_at is not null
        and p.provider_id is not null
        and not exists (
          select from ${halves(tx)} h
          where h.payment_id = p.id and ${isUndecided(tx)}
        )
      order by p.concluded_at limit ${limit} for update of p skip locked`
    if (taken.length === 0) return 0
    await tx`
      with concluded as (
        select p.id, coalesce(sum(case
            when h.state <> 'settled' then 0
            when p.splitter is null then 1 << h.half
            else 3
          end), 0) + case when p.voided_at is null then 0 else 4 end as bits,
          max(h.block_time) filter (where h.state = 'settled') as settled_time
        from payment p left join ${halves(tx)} h on h.payment_id = p.id
        where p.id = any(${taken.map(({ id }) => id)})
        group by p.id
        having not bool_or(${isUndecided(tx)})
      ), added as (
        update payment p set summarised = c.bits,
          settlement_seconds = case when p.source = 'gateway' and c.bits & 1 = 1
            then greatest(0, c.settled_time - extract(epoch from p.accepted_at)) end
        from concluded c where p.id = c.id
        returning p.provider_id, p.accepted_at, p.endpoint_id, p.chain_id, p.payee, p.payer, p.provider_amount,
          p.fee_amount, p.summarised, p.settlement_seconds
      ), share as (
        select added.*, share.* from added
        cross join lateral revenue_share(added.provider_amount, added.fee_amount, added.summarised) share
      ), by_payer as (
        insert into payer_revenue as r
          (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, last_accepted_at)
        select provider_id, period,
          case period when 'all' then 'epoch' else date_trunc(period, accepted_at, 'UTC') end as starts_at,
          chain_id, payer, sum(payments), sum(gross), sum(settled_net), max(accepted_at)
        from share cross join (values ('all'), ('month'), ('day')) as periods (period)
        group by 1, 2, 3, 4, 5
        order by 1, 2, 3, 4, 5
        on conflict (provider_id, period, starts_at, chain_id, payer) do update set
          payments = r.payments + excluded.payments, gross = r.gross + excluded.gross,
          settled_net = r.settled_net + excluded.settled_net,
          last_accepted_at = greatest(r.last_accepted_at, excluded.last_accepted_at)
      ), by_time as (
        insert into settlement_time as t (chain_id, day, bucket, payments)
        select chain_id, (accepted_at at time zone 'UTC')::date, settlement_bucket(settlement_seconds), count(*)
        from added where settlement_seconds is not null
        group by 1, 2, 3
        order by 1, 2, 3
        on conflict (chain_id, day, bucket) do update set payments = t.payments + excluded.payments
      )
      insert into revenue as r (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments,
        voided_payments, settled_payments, failed_payments, gross, fee, settled_net, settled_fee, failed_net)
      select provider_id, period, date_trunc(period, accepted_at, 'UTC') as starts_at, endpoint_id, chain_id, payee,
        sum(payments), sum(voided_payments), sum(settled_payments), sum(failed_payments), sum(gross), sum(fee),
        sum(settled_net), sum(settled_fee), sum(failed_net)
      from share cross join (values ('hour'), ('day'), ('month')) as periods (period)
      group by 1, 2, 3, 4, 5, 6
      order by 1, 2, 3, 4, 5, 6
      on conflict (provider_id, period, starts_at, endpoint_id, chain_id, payee) do update set
        payments = r.payments + excluded.payments, voided_payments = r.voided_payments + excluded.voided_payments,
        settled_payments = r.settled_payments + excluded.settled_payments,
        failed_payments = r.failed_payments + excluded.failed_payments,
        gross = r.gross + excluded.gross, fee = r.fee + excluded.fee,
        settled_net = r.settled_net + excluded.settled_net, settled_fee = r.settled_fee + excluded.settled_fee,
        failed_net = r.failed_net + excluded.failed_net`
    return taken.length
  })
}

/** Keeps the sums up to date, in the background of an api process. */
export function startSummaries({
  sql,
  log,
  onError,
}: {
  sql: Database
  log: Logger
  onError?: () => void
}): Loop {
  const limit = 2_000
  return repeat({
    name: 'summaries',
    everyMs: 5_000,
    async step() {
      const added = await summarisePayments(sql, { limit }).catch((error: unknown) => {
        // Not deployed yet: nothing can be concluded either.
        if (isMissingIndex(error)) return 0
        throw error
      })
      return added < limit ? 'idle' : 'busy'
    },
    onError(error) {
      // Until then the views sum from the chain what is missing here: slower, not wrong.
      log.warn({ err: error }, 'payments can not be summarised for now')
      onError?.()
    },
  })
}
