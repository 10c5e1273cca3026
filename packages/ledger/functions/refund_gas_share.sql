-- Returns the share of the pool for refunds that one provider's refunds may draw per UTC day, in USDC base units: a quarter.
create or replace function refund_gas_share(most numeric) returns numeric language sql immutable as $$
  select trunc(most / 4)
$$;
