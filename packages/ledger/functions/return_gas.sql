-- Returns the unused part of a payment's gas reservation when the payment leaves the queue for any reason. The trigger is deferred, so that a
-- transaction that ends many payments locks rows of gas_draw only while it commits.
create or replace function return_gas() returns trigger language plpgsql as $$
begin
  update gas_draw set drawn = drawn - (old.gas_reserved - old.gas_spent)
  where day = old.gas_day and drawer = old.gas_drawer;
  return null;
end
$$;

create constraint trigger queue_returns_gas after delete on queue deferrable initially deferred for each row
  when (old.gas_reserved > old.gas_spent) execute function return_gas();
