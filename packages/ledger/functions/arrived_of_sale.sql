-- Returns the amount of a sale that has moved, both parts together, by what the chain did with the tab's authorization
-- (packages/ledger/facts/halves.ts), and the basis points of the fee in it that went elsewhere than to our platform. If another state was
-- settled than the one that was stored, the line's sales arrived in their order, as far as that state's amount goes.
create or replace function arrived_of_sale(of_payment text, of_position smallint, of_number smallint, of_amount numeric, state text)
returns table (arrived numeric, lost_fee_share smallint) language sql stable as $$
  select case
    when l.moved is not null and state in ('settled', 'foreign_use') then least(of_amount, greatest(0, l.moved - (
      select coalesce(sum(e.provider_amount + e.fee_amount), 0) from tab_sale e
      where e.payment_id = of_payment and e.position = of_position and e.number < of_number
    )))
    when state = 'settled' then of_amount
    else 0
  end, coalesce((select e.lost_fee_share from authorization_event e where e.payment_id = of_payment and e.half = 0), 0::smallint)
  from tab_line l where l.payment_id = of_payment and l.position = of_position
$$;
