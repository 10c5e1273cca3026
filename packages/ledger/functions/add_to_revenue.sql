-- Adds final outcomes to the sums (direction 1), or subtracts them again (-1). It runs in the transaction that writes the outcomes, so
-- a payment is in the sums if and only if its outcome is final.
--
-- Each request that was bought on a tab counts as a payment. The arrived part of a sale is stored with the sale, so that exactly
-- the same amount is subtracted again.
create or replace function add_to_revenue(ended outcome[], direction integer) returns void language sql as $$
  with sale as materialized (
    select s.*, t.reward_share, o.kind = 'voided' as was_voided, o.kind <> 'settled' or o.is_partial as ended_badly,
      o.settlement_seconds,
      case when direction = 1 then reach.arrived else s.arrived end as has_arrived,
      case when direction = 1 then reach.lost_fee_share else s.lost_fee_share end as has_lost
    from unnest(ended) as o join tab_sale s on s.payment_id = o.payment_id
    join tab_payment t on t.payment_id = s.payment_id
    cross join lateral arrived_of_sale(s.payment_id, s.position, s.number, s.provider_amount + s.fee_amount,
      case when o.arrived & 1 = 1 then 'settled' else 'foreign_use' end) reach
  ), kept as (
    update tab_sale s set arrived = case when direction = 1 then sale.has_arrived end,
      lost_fee_share = case when direction = 1 then sale.has_lost end,
      is_exceptional = direction = 1 and sale.ended_badly
    from sale where s.payment_id = sale.payment_id and s.number = sale.number
  ), share as (
    select p.provider_id, p.accepted_at, p.endpoint_id, p.chain_id, p.payee, p.payer, o.settlement_seconds, 1 as requests,
      s.settled_fee as kept_fee, s.*
    from unnest(ended) as o join payment p on p.id = o.payment_id
    cross join lateral revenue_share(p.provider_amount, p.fee_amount, o.kind = 'voided', o.arrived) s
    where p.provider_id is not null
    union all
    select sale.provider_id, sale.accepted_at, sale.endpoint_id, sale.chain_id, sale.payee, sale.payer, sale.settlement_seconds,
      sale.requests,
      -- A payer earns no credit by a tab that it settled under terms of its own.
      case when sale.has_lost > 0 then 0 else s.settled_fee - ceil(s.settled_fee * sale.reward_share / 10000) end, s.*
    from sale
    cross join lateral sale_share(sale.requests, sale.provider_amount, sale.fee_amount, sale.was_voided, sale.has_arrived,
      sale.has_lost) s
  ), by_payer as (
    insert into payer_revenue as r
      (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, kept_fee, last_accepted_at)
    select provider_id, period,
      case period when 'all' then 'epoch' else date_trunc(period, accepted_at, 'UTC') end as starts_at,
      chain_id, payer, direction * sum(payments), direction * sum(gross), direction * sum(settled_net),
      direction * sum(kept_fee), max(accepted_at)
    from share cross join (values ('all'), ('month'), ('day')) as periods (period)
    group by 1, 2, 3, 4, 5
    order by 1, 2, 3, 4, 5
    on conflict (provider_id, period, starts_at, chain_id, payer) do update set
      payments = r.payments + excluded.payments, gross = r.gross + excluded.gross,
      settled_net = r.settled_net + excluded.settled_net, kept_fee = r.kept_fee + excluded.kept_fee,
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
    voided_payments, settled_payments, failed_payments, gross, fee, settled_net, settled_fee, failed_net)
  select provider_id, period, date_trunc(period, accepted_at, 'UTC') as starts_at, endpoint_id, chain_id, payee,
    direction * sum(payments), direction * sum(voided_payments), direction * sum(settled_payments),
    direction * sum(failed_payments), direction * sum(gross), direction * sum(fee), direction * sum(settled_net),
    direction * sum(settled_fee), direction * sum(failed_net)
  from share cross join (values ('hour'), ('day'), ('month')) as periods (period)
  group by 1, 2, 3, 4, 5, 6
  order by 1, 2, 3, 4, 5, 6
  on conflict (provider_id, period, starts_at, endpoint_id, chain_id, payee) do update set
    payments = r.payments + excluded.payments, voided_payments = r.voided_payments + excluded.voided_payments,
    settled_payments = r.settled_payments + excluded.settled_payments,
    failed_payments = r.failed_payments + excluded.failed_payments,
    gross = r.gross + excluded.gross, fee = r.fee + excluded.fee,
    settled_net = r.settled_net + excluded.settled_net, settled_fee = r.settled_fee + excluded.settled_fee,
    failed_net = r.failed_net + excluded.failed_net
$$;
