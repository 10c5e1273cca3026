-- Rejects updates, because rows about accepted payments never change.
create or replace function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'a row of % is a fact: it is never changed', tg_table_name;
end
$$;

create trigger payment_is_fact before update on payment
  for each statement execute function refuse_change();
