-- Adds recorded batches to their keepers' daily sums, and subtracts those that a reorg deletes.
create or replace function count_batches() returns trigger language plpgsql as $$
begin
  insert into keeper_day as k (chain_id, day, keeper, batches, payments, total, gas_used, gas_cost)
  select chain_id, (to_timestamp(block_time) at time zone 'UTC')::date, keeper, d * count(*), d * sum(payment_count),
    d * sum(provider_total + fee_total), d * coalesce(sum(gas_used) filter (where is_first), 0),
    d * coalesce(sum(gas_cost) filter (where is_first), 0)
  from changed cross join (values (case tg_op when 'INSERT' then 1 else -1 end)) as direction (d)
  group by d, 1, 2, 3
  order by 1, 2, 3
  on conflict (chain_id, day, keeper) do update set
    batches = k.batches + excluded.batches, payments = k.payments + excluded.payments, total = k.total + excluded.total,
    gas_used = k.gas_used + excluded.gas_used, gas_cost = k.gas_cost + excluded.gas_cost;
  return null;
end
$$;

create trigger batches_recorded after insert on settled_batch
  referencing new table as changed for each statement execute function count_batches();
create trigger batches_taken_back after delete on settled_batch
  referencing old table as changed for each statement execute function count_batches();
