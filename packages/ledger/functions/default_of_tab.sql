-- Returns how much of the providers' parts of a tab's sales never arrived. Valid once the tab's result is final.
create or replace function default_of_tab(of_payment text) returns numeric language sql stable as $$
  select coalesce(sum(share.failed_net), 0)
  from sale s cross join lateral sale_share(s, false, 0) share
  where s.payment_id = of_payment and s.provider_id is not null
$$;
