-- Reserves an amount for a payment's gas, and releases what is left of its earlier reservation. Returns false if the drawer has too
-- little left; `most` is the drawer's limit, null: none.
create or replace function draw_gas(payment text, from_drawer text, most numeric, amount numeric, on_day date) returns boolean
language plpgsql as $$
declare
  held queue;
begin
  select * into held from queue where payment_id = payment for update;
  if not found then return false; end if;
  update gas_draw set drawn = drawn - (held.gas_reserved - held.gas_spent)
  where day = held.gas_day and drawer = held.gas_drawer;
  insert into gas_draw as d (day, drawer, drawn)
  select on_day, from_drawer, amount where most is null or amount <= most
  on conflict (day, drawer) do update set drawn = d.drawn + excluded.drawn
    where most is null or d.drawn + excluded.drawn <= most;
  if not found then
    update gas_draw set drawn = drawn + (held.gas_reserved - held.gas_spent)
    where day = held.gas_day and drawer = held.gas_drawer;
    return false;
  end if;
  update queue set gas_drawer = from_drawer, gas_day = on_day, gas_reserved = amount, gas_spent = 0
  where payment_id = payment;
  return true;
end
$$;
