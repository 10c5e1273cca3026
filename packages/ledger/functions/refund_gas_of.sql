-- Returns the amount that a provider's refunds have drawn from a drawer of gas_draw on a UTC day, in USDC base units: the reservations of open
-- refunds, and the cost of transactions. It reads only refunds that were accepted in the last week. The unspent reservation of the payment `besides`
-- doesn't count, because a new reservation replaces it.
create or replace function refund_gas_of(of_provider text, of_drawer text, on_day date, besides text) returns numeric
language sql stable as $$
  select coalesce(sum(coalesce(open.amount, 0) + coalesce(spent.amount, 0)), 0)
  from refund r
  left join lateral (
    select q.gas_reserved - q.gas_spent as amount from queue q
    where q.payment_id = r.payment_id and q.gas_drawer = of_drawer and q.gas_day = on_day
      and q.payment_id is distinct from besides
  ) open on true
  left join lateral (
    select sum(i.gas) as amount from batch_item i
    where i.payment_id = r.payment_id and i.gas_drawer = of_drawer and i.gas_day = on_day
  ) spent on true
  where r.provider_id = of_provider and r.accepted_at >= on_day - 7
$$;
