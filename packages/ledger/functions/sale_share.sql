-- Returns the amounts that a sale adds to the sums, given the part that has arrived (arrived_of_sale.sql). Each request counts as one
-- payment. A request has settled once the provider's part of it has arrived. If a sale arrived in part, as many requests have settled as
-- the arrived amount pays for.
--
-- A voided sale counts as nothing, unless its provider settled it anyway. `failed_payments` and `failed_net` are everything that hasn't
-- arrived, which includes pending amounts until the sale's result is final.
--
-- halves: as in arrived_of_sale.sql
--
-- The result is a table of one row, because Postgres can inline such a function.
create or replace function sale_share(sold sale, was_voided boolean, halves integer)
returns table (is_voided boolean, payments integer, voided_payments integer, settled_payments integer,
  failed_payments integer, tab_payments integer, gross numeric, fee numeric, settled_net numeric, settled_fee numeric,
  failed_net numeric, lost_fee_share smallint, arrived numeric)
language sql stable as $$
  select counted.is_voided,
    case when counted.is_voided then 0 else sold.requests end,
    case when counted.is_voided then sold.requests else 0 end,
    counted.settled,
    case when counted.is_voided then 0 else sold.requests - counted.settled end,
    case when counted.is_voided or sold.source <> 'tab' then 0 else sold.requests end,
    case when counted.is_voided then 0 else sold.provider_amount + sold.fee_amount end,
    case when counted.is_voided then 0 else sold.fee_amount end,
    counted.net,
    div(counted.fee * (10000 - counted.lost_fee_share), 10000),
    case when counted.is_voided then 0 else sold.provider_amount - counted.net end,
    counted.lost_fee_share,
    counted.net + counted.fee
  from (
    select reach.net, reach.fee, reach.lost_fee_share, was_voided and reach.net = 0 as is_voided,
      case
        when reach.net = 0 then 0
        when reach.net = sold.provider_amount then sold.requests
        else div(sold.requests * (reach.net + reach.fee), sold.provider_amount + sold.fee_amount)::int
      end as settled
    from arrived_of_sale(sold, halves) reach
  ) counted
$$;
