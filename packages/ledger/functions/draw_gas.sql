-- Reserves an amount for a payment's gas, and releases the unused part of the payment's earlier reservation. The amount comes from a drawer of
-- gas_draw: a provider's grant, a common allowance, or the operator's budget. Returns false if the drawer doesn't have enough left. `most` is the
-- drawer's limit; null: unlimited.
--
-- share_of: the provider, if the payment is a refund; otherwise null. A provider's refunds together get at most their share of the pool, so that no
-- provider uses up the pool that other providers' refunds need. A provider's first refund of a day may take more, because a share might be too small
-- for a single refund if gas is expensive. The drawer's row is locked before the share is checked, so concurrent draws are counted sequentially.
create or replace function draw_gas(
  payment text, from_drawer text, most numeric, amount numeric, on_day date, share_of text
) returns boolean language plpgsql as $$
declare
  held queue;
  is_drawn boolean;
begin
  select * into held from queue where payment_id = payment for update;
  if not found then return false; end if;
  update gas_draw set drawn = drawn - (held.gas_reserved - held.gas_spent)
  where day = held.gas_day and drawer = held.gas_drawer;
  insert into gas_draw as d (day, drawer, drawn)
  select on_day, from_drawer, amount where most is null or amount <= most
  on conflict (day, drawer) do update set drawn = d.drawn + excluded.drawn
    where most is null or d.drawn + excluded.drawn <= most;
  is_drawn := found;
  if is_drawn and is_refund_pool(from_drawer) and exists (
    select from refund_gas_of(share_of, from_drawer, on_day, payment) own
    where own > 0 and own + amount > refund_gas_share(most)
  ) then
    update gas_draw set drawn = drawn - amount where day = on_day and drawer = from_drawer;
    is_drawn := false;
  end if;
  if not is_drawn then
    update gas_draw set drawn = drawn + (held.gas_reserved - held.gas_spent)
    where day = held.gas_day and drawer = held.gas_drawer;
    return false;
  end if;
  update queue set gas_drawer = from_drawer, gas_day = on_day, gas_reserved = amount, gas_spent = 0
  where payment_id = payment;
  return true;
end
$$;
