-- Returns how much a provider's refunds may draw for gas on a chain on a UTC day, and how much of that is left, in USDC base units. The limit is the
-- provider's grant or, without a grant, its share of the pool for refunds; only the day's first refund may draw the whole pool (draw_gas). If the
-- grant or the pool has less left, `remaining` is that amount.
create or replace function refund_gas_left(of_provider text, common numeric, chain integer, on_day date)
returns table (has_grant boolean, most numeric, remaining numeric) language sql stable as $$
  select not pooled.is_pool, limited.most, greatest(0, least(limited.most - pooled.own, source.most - coalesce(d.drawn, 0)))
  from gas_source(of_provider, common, chain, 'refunds') source
  cross join lateral (
    select is_refund_pool(source.drawer) as is_pool, case
      when is_refund_pool(source.drawer) then refund_gas_of(of_provider, source.drawer, on_day, null) else 0
    end as own
  ) pooled
  cross join lateral (
    select case when pooled.own > 0 then refund_gas_share(source.most) else source.most end as most
  ) limited
  left join gas_draw d on d.day = on_day and d.drawer = source.drawer
$$;
