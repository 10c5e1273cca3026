-- Returns whether a drawer of gas_draw is the pool that pays for refunds of providers without a grant.
create or replace function is_refund_pool(drawer text) returns boolean language sql immutable as $$
  select split_part(drawer, ':', 1) = 'refunds'
$$;
