-- Returns the authorizations of a payment that have settled according to the record, as the bits of payment_result.arrived: 1 the provider's
-- authorization, 2 the authorization with the fee.
create or replace function settled_halves(of_payment text, fee_half integer) returns table (settled integer)
language sql stable as $$
  select coalesce(bit_or(case when e.half = 0 then 1 else 0 end | case when e.half = fee_half then 2 else 0 end), 0)
  from authorization_event e where e.payment_id = of_payment and e.state = 'settled'
$$;
