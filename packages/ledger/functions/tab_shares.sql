-- Returns a row for each provider that sold on a tab, with that provider's sales only. `data` is for an event. Returns no row for
-- a payment that isn't a tab.
create or replace function tab_shares(of_payment text) returns table (provider_id text, amount numeric, arrived numeric,
  settled_requests bigint, settled_net numeric, data jsonb) language sql stable as $$
  select sold.provider_id, sum(sold.net + sold.fee), sum(sold.arrived), sum(sold.settled_requests)::bigint, sum(sold.settled_net),
    jsonb_build_object('tabId', t.tab_id, 'closeReason', t.close_reason,
      'requests', sum(sold.requests), 'providerUsdc', sum(sold.net)::text, 'platformUsdc', sum(sold.fee)::text,
      'settledUsdc', sum(sold.settled_net)::text, 'lines', jsonb_agg(jsonb_build_object('endpointId', sold.endpoint_id,
        'payTo', sold.payee, 'requests', sold.requests, 'providerUsdc', sold.net::text, 'platformUsdc', sold.fee::text,
        'settledUsdc', sold.settled_net::text) order by sold.position, sold.endpoint_id))
  from tab_payment t join (
    select s.payment_id, s.provider_id, s.position, s.endpoint_id, s.payee, sum(s.requests) as requests,
      sum(s.provider_amount) as net, sum(s.fee_amount) as fee, sum(reach.arrived) as arrived,
      sum(share.settled_payments) as settled_requests, sum(share.settled_net) as settled_net
    from tab_sale s
    left join authorization_event e on e.payment_id = s.payment_id and e.half = 0
    cross join lateral arrived_of_sale(s.payment_id, s.position, s.number, s.provider_amount + s.fee_amount, e.state) reach
    cross join lateral sale_share(s.requests, s.provider_amount, s.fee_amount, false, reach.arrived, reach.lost_fee_share) share
    where s.payment_id = of_payment
    group by 1, 2, 3, 4, 5
  ) sold on sold.payment_id = t.payment_id
  where t.payment_id = of_payment
  group by t.payment_id, sold.provider_id
$$;
