-- Updates the sums, the defaults that the platform bears, the loans of tabs, and passes when results become final or are no longer final.
create or replace function follow_changed_results() returns trigger language plpgsql as $$
declare
  reopened payment_result[] := array(
    select o::payment_result from old_results o join new_results n using (payment_id) where o.final_at is not null and n.final_at is null);
  finalized payment_result[] := array(
    select n::payment_result from new_results n join old_results o using (payment_id) where n.final_at is not null and o.final_at is null);
begin
  -- Skip calls that would have nothing to do: this trigger also runs after an insert whose `on conflict` changed no row, and planning the calls takes
  -- longer than executing them for a few rows.
  if cardinality(reopened) > 0 then
    perform add_to_revenue(reopened, -1);
    perform cover_defaults(reopened, -1);
  end if;
  if cardinality(finalized) > 0 then
    perform add_to_revenue(finalized, 1);
    perform cover_defaults(finalized, 1);
    perform return_loans(finalized);
  end if;
  if exists (select from new_results) then
    perform follow_passes(array(select n.payment_id from new_results n));
  end if;
  return null;
end
$$;

create trigger payment_result_changed after update on payment_result
  referencing old table as old_results new table as new_results
  for each statement execute function follow_changed_results();
