-- Updates the sums, the defaults that the platform bears, the loans of tabs, and passes when results are inserted.
create or replace function follow_new_results() returns trigger language plpgsql as $$
declare
  finalized payment_result[] := array(select n::payment_result from new_results n where n.final_at is not null);
begin
  if cardinality(finalized) > 0 then
    perform add_to_revenue(finalized, 1);
    perform cover_defaults(finalized, 1);
    perform return_loans(finalized);
  end if;
  perform follow_passes(array(select n.payment_id from new_results n));
  return null;
end
$$;

create trigger payment_result_added after insert on payment_result
  referencing new table as new_results for each statement execute function follow_new_results();
