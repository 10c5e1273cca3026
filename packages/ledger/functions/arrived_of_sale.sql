-- Returns the amount of a sale that has moved, both parts together, by what the chain did with the tab's authorization
-- (packages/ledger/facts/halves.ts), and the basis points of the fee in it that went elsewhere than to our platform. If another state was
-- settled than the one that was stored, the line's sales arrived in their order, as far as that state's amount goes.
--
-- What a credit paid for moved with an earlier tab, so it arrives first and whatever becomes of this tab: it is what was sold on the line
-- beyond what is charged on it.
create or replace function arrived_of_sale(of_payment text, of_position smallint, of_number smallint, of_amount numeric, state text)
returns table (arrived numeric, lost_fee_share smallint) language sql stable as $$
  select case
    when state = 'settled' and l.moved is null then of_amount
    when state in ('settled', 'foreign_use')
      then least(of_amount, greatest(0, coalesce(l.moved, 0) + greatest(0, sold.total - l.charged) - sold.earlier))
    else 0
  end, coalesce((select e.lost_fee_share from authorization_event e where e.payment_id = of_payment and e.half = 0), 0::smallint)
  from tab_line l
  cross join lateral (
    select sum(s.provider_amount + s.fee_amount) as total,
      coalesce(sum(s.provider_amount + s.fee_amount) filter (where s.number < of_number), 0) as earlier
    from tab_sale s where s.payment_id = of_payment and s.position = of_position
  ) sold
  where l.payment_id = of_payment and l.position = of_position
$$;
