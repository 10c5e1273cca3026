-- Returns the amounts of a sale that have moved: the provider's part and the fee. Also returns which share of the fee, in basis points, did not go to
-- our platform.
--
-- halves: the settled authorizations of its payment, as the bits of payment_result.arrived. A part whose authorization settled has moved completely.
-- If a tab settled in a state other than the stored state, or not at all, the money that moved on a line pays for the line's sales in order, until it
-- is used up. Sales that were paid from a credit come first, because their money moved with an earlier tab, regardless of this tab's result. Their
-- amount is the amount sold on the line minus the amount charged on it.
--
-- The stored arrived amount of a final sale is used unchanged, so that the same amount is subtracted from the sums if the sale is reopened.
create or replace function arrived_of_sale(sold sale, halves integer)
returns table (net numeric, fee numeric, lost_fee_share smallint) language sql stable as $$
  select case
      when reach.amount is not null then reach.amount - part.fee
      when halves & 1 = 1 then sold.provider_amount
      else 0
    end,
    case
      when reach.amount is not null then part.fee
      when halves & 2 = 2 then sold.fee_amount
      else 0
    end,
    reach.lost_fee_share
  from (
    -- `offset 0` makes Postgres evaluate this subquery only once, and not at each use.
    select case
        when sold.arrived is not null then sold.arrived
        when l.payment_id is null or l.moved is null and halves & 1 = 1 then null
        else (
          select least(
            sold.provider_amount + sold.fee_amount,
            greatest(0, coalesce(l.moved, 0) + greatest(0, sum(s.provider_amount + s.fee_amount) - l.charged)
              - coalesce(sum(s.provider_amount + s.fee_amount) filter (where s.number < sold.number), 0))
          )
          from tab_sale s where s.payment_id = l.payment_id and s.position = l.position
        )
      end as amount,
      case
        when l.payment_id is null then 0::smallint
        when sold.lost_fee_share is not null then sold.lost_fee_share
        else coalesce((
          select e.lost_fee_share from authorization_event e where e.payment_id = l.payment_id and e.half = 0
        ), 0::smallint)
      end as lost_fee_share
    from (values (true)) one left join tab_line l on l.payment_id = sold.payment_id and l.position = sold.position
    offset 0
  ) reach
  cross join lateral (
    select case
      when reach.amount = sold.provider_amount + sold.fee_amount then sold.fee_amount
      else div(sold.fee_amount * reach.amount, sold.provider_amount + sold.fee_amount)
    end as fee
  ) part
$$;
