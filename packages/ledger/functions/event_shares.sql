-- Returns the contents of a payment's webhook events, one row for each provider that the payment concerns. Providers who sold something get
-- `payment.…` and `tab.…` for their own sales, and the provider who pays a refund gets `refund.…`.
--
-- net: the provider's part of the amount that is to arrive; settled_net: the part of `net` that has arrived
-- data: fields of all events; settled_data: additional fields of events about the payment's settlement
create or replace function event_shares(of_payment text)
returns table (subject text, provider_id text, net numeric, settled_net numeric, data jsonb, settled_data jsonb)
language sql stable as $$
  select case when t.payment_id is null then 'payment' else 'tab' end, sold.provider_id, sum(sold.net), sum(sold.settled_net),
    case when t.payment_id is null then '{}' else jsonb_build_object('tabId', t.tab_id, 'closeReason', t.close_reason,
      'requests', sum(sold.requests), 'providerUsdc', sum(sold.net)::text, 'platformUsdc', sum(sold.fee)::text,
      'settledUsdc', sum(sold.settled_net)::text, 'lines', jsonb_agg(jsonb_build_object('endpointId', sold.endpoint_id,
        'payTo', sold.payee, 'requests', sold.requests, 'providerUsdc', sold.net::text, 'platformUsdc', sold.fee::text,
        'settledUsdc', sold.settled_net::text) order by sold.position, sold.endpoint_id))
    end,
    case when t.payment_id is not null then '{}' else jsonb_build_object('providerUsdc', sum(sold.net)::text,
      'platformUsdc', sum(sold.fee)::text, 'platformTxHash', (
        select e.tx_hash from authorization_event e
        where e.payment_id = of_payment and e.half = max(sold.fee_half) and e.state = 'settled'
      ))
    end
  from (
    select s.provider_id, s.position, s.endpoint_id, s.payee, s.fee_half, sum(s.requests) as requests, sum(s.provider_amount) as net,
      sum(s.fee_amount) as fee, sum(share.settled_net) as settled_net
    from sale s
    cross join lateral settled_halves(s.payment_id, s.fee_half) half
    cross join lateral sale_share(s, false, half.settled) share
    where s.payment_id = of_payment and s.provider_id is not null
    group by 1, 2, 3, 4, 5
  ) sold left join tab_payment t on t.payment_id = of_payment
  group by t.payment_id, sold.provider_id
  union all
  select 'refund', r.provider_id, p.provider_amount, case when half.settled & 1 = 1 then p.provider_amount else 0 end,
    jsonb_build_object('paymentId', r.of_payment_id, 'number', r.number),
    jsonb_build_object('valueUsdc', p.provider_amount::text)
  from refund r join payment p on p.id = r.payment_id
  cross join lateral settled_halves(r.payment_id, 1) half
  where r.payment_id = of_payment
$$;
