-- Adds payments with final results to the sums (direction 1), or subtracts them again (-1). It runs in the transaction that writes the results, so a
-- sale is in the sums if and only if the result of its payment is final.
--
-- The arrived part of a sale on a tab is stored with the sale, and the arrived part of a payment is stored with its result, so that exactly the same
-- amount is subtracted later.
--
-- It is planned once per session: planning takes as long as adding a hundred payments, and the plan is the same for any number of them.
create or replace function add_to_revenue(ended payment_result[], direction integer) returns void language sql
set plan_cache_mode = force_generic_plan as $$
  with share as materialized (
    select s.payment_id, s.number, s.source, s.provider_id, s.accepted_at, s.endpoint_id, s.chain_id, s.payee, s.payer, s.requests,
      o.settlement_seconds, o.kind <> 'settled' or o.is_partial as ended_badly,
      -- A payer earns no credit from a tab that it settled under terms other than those accepted.
      case
        when share.lost_fee_share > 0 then 0
        else share.settled_fee - ceil(share.settled_fee * coalesce(t.reward_share, 0) / 10000)
      end as kept_fee,
      share.payments, share.voided_payments, share.settled_payments, share.failed_payments, share.tab_payments, share.gross,
      share.fee, share.settled_net, share.settled_fee, share.failed_net, share.lost_fee_share, share.arrived
    from unnest(ended) as o join sale s on s.payment_id = o.payment_id and s.provider_id is not null
    left join tab_payment t on t.payment_id = s.payment_id
    cross join lateral sale_share(s, o.kind = 'voided', o.arrived) share
  ), kept as (
    update tab_sale s set arrived = case when direction = 1 then share.arrived end,
      lost_fee_share = case when direction = 1 then share.lost_fee_share end,
      is_exceptional = direction = 1 and share.ended_badly
    from share where share.source = 'tab' and s.payment_id = share.payment_id and s.number = share.number
  ), by_payer as (
    insert into payer_revenue as r (provider_id, period, starts_at, endpoint_id, chain_id, payer, payments, voided_payments,
      settled_payments, failed_payments, tab_payments, gross, fee, settled_net, settled_fee, failed_net, kept_fee,
      first_accepted_at, last_accepted_at)
    select provider_id, period,
      case period when 'all' then 'epoch' else date_trunc(period, accepted_at, 'UTC') end as starts_at,
      case period when 'all' then null else endpoint_id end as endpoint_id, chain_id, payer,
      direction * sum(payments), direction * sum(voided_payments), direction * sum(settled_payments),
      direction * sum(failed_payments), direction * sum(tab_payments), direction * sum(gross), direction * sum(fee),
      direction * sum(settled_net), direction * sum(settled_fee), direction * sum(failed_net), direction * sum(kept_fee),
      min(accepted_at) filter (where payments > 0), max(accepted_at) filter (where payments > 0)
    from share cross join (values ('all'), ('month'), ('day')) as periods (period)
    group by 1, 2, 3, 4, 5, 6
    order by 1, 2, 3, 4, 5, 6
    on conflict (provider_id, period, starts_at, endpoint_id, chain_id, payer) do update set
      payments = r.payments + excluded.payments, voided_payments = r.voided_payments + excluded.voided_payments,
      settled_payments = r.settled_payments + excluded.settled_payments,
      failed_payments = r.failed_payments + excluded.failed_payments, tab_payments = r.tab_payments + excluded.tab_payments,
      gross = r.gross + excluded.gross, fee = r.fee + excluded.fee,
      settled_net = r.settled_net + excluded.settled_net, settled_fee = r.settled_fee + excluded.settled_fee,
      failed_net = r.failed_net + excluded.failed_net, kept_fee = r.kept_fee + excluded.kept_fee,
      first_accepted_at = least(r.first_accepted_at, excluded.first_accepted_at),
      last_accepted_at = greatest(r.last_accepted_at, excluded.last_accepted_at)
  ), by_time as (
    insert into settlement_time as t (chain_id, day, bucket, payments)
    select chain_id, (accepted_at at time zone 'UTC')::date, settlement_bucket(settlement_seconds), direction * sum(requests)
    from share where settlement_seconds is not null
    group by 1, 2, 3
    order by 1, 2, 3
    on conflict (chain_id, day, bucket) do update set payments = t.payments + excluded.payments
  )
  insert into revenue as r (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments,
    voided_payments, settled_payments, failed_payments, tab_payments, gross, fee, settled_net, settled_fee, failed_net)
  select provider_id, period, date_trunc(period, accepted_at, 'UTC') as starts_at, endpoint_id, chain_id, payee,
    direction * sum(payments), direction * sum(voided_payments), direction * sum(settled_payments),
    direction * sum(failed_payments), direction * sum(tab_payments), direction * sum(gross), direction * sum(fee),
    direction * sum(settled_net), direction * sum(settled_fee), direction * sum(failed_net)
  from share cross join (values ('hour'), ('day'), ('month')) as periods (period)
  group by 1, 2, 3, 4, 5, 6
  order by 1, 2, 3, 4, 5, 6
  on conflict (provider_id, period, starts_at, endpoint_id, chain_id, payee) do update set
    payments = r.payments + excluded.payments, voided_payments = r.voided_payments + excluded.voided_payments,
    settled_payments = r.settled_payments + excluded.settled_payments,
    failed_payments = r.failed_payments + excluded.failed_payments, tab_payments = r.tab_payments + excluded.tab_payments,
    gross = r.gross + excluded.gross, fee = r.fee + excluded.fee,
    settled_net = r.settled_net + excluded.settled_net, settled_fee = r.settled_fee + excluded.settled_fee,
    failed_net = r.failed_net + excluded.failed_net
$$;
