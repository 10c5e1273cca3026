-- Returns the amounts that one sale adds to the sums, as revenue_share does for a payment. Each request counts as one payment. If
-- the sale arrived in part, as many requests count as settled as that amount pays for. `lost_fee_share` of the fee in it, in basis points,
-- didn't reach our platform, so it isn't settled.
create or replace function sale_share(requests integer, net numeric, platform_fee numeric, was_voided boolean, arrived numeric,
  lost_fee_share smallint)
returns table (is_voided boolean, payments integer, voided_payments integer, settled_payments integer,
  failed_payments integer, gross numeric, fee numeric, settled_net numeric, settled_fee numeric, failed_net numeric)
language sql immutable as $$
  select counted.is_voided,
    case when counted.is_voided then 0 else requests end,
    case when counted.is_voided then requests else 0 end,
    counted.settled,
    case when counted.is_voided then 0 else requests - counted.settled end,
    case when counted.is_voided then 0 else net + platform_fee end,
    case when counted.is_voided then 0 else platform_fee end,
    arrived - counted.fee,
    div(counted.fee * (10000 - lost_fee_share), 10000),
    case when counted.is_voided then 0 else net - (arrived - counted.fee) end
  from (
    select was_voided and arrived = 0 as is_voided,
      case when arrived = net + platform_fee then requests else div(requests * arrived, net + platform_fee)::int end as settled,
      case when arrived = net + platform_fee then platform_fee else div(platform_fee * arrived, net + platform_fee) end as fee
  ) counted
$$;
