-- Returns the amounts that one payment adds to the sums, by its outcome. A voided payment counts as nothing, unless its provider
-- settled its half anyway.
--
-- The result is a table of one row, because Postgres inlines that.
create or replace function revenue_share(net numeric, platform_fee numeric, was_voided boolean, arrived integer)
returns table (is_voided boolean, payments integer, voided_payments integer, settled_payments integer,
  failed_payments integer, gross numeric, fee numeric, settled_net numeric, settled_fee numeric, failed_net numeric)
language sql immutable as $$
  select was_voided and arrived & 1 = 0,
    case when was_voided and arrived & 1 = 0 then 0 else 1 end,
    case when was_voided and arrived & 1 = 0 then 1 else 0 end,
    arrived & 1,
    case when not was_voided and arrived & 1 = 0 then 1 else 0 end,
    case when was_voided and arrived & 1 = 0 then 0 else net + platform_fee end,
    case when was_voided and arrived & 1 = 0 then 0 else platform_fee end,
    case when arrived & 1 = 1 then net else 0 end,
    case when arrived & 2 = 2 then platform_fee else 0 end,
    case when not was_voided and arrived & 1 = 0 then net else 0 end
$$;
