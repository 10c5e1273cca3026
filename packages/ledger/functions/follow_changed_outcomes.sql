-- Keeps the sums, what the platform bears of defaults, and what tabs were lent in step with outcomes that become final, or are final no
-- longer.
create or replace function follow_changed_outcomes() returns trigger language plpgsql as $$
declare
  reopened outcome[] := array(
    select o::outcome from old_outcomes o join new_outcomes n using (payment_id) where o.final_at is not null and n.final_at is null);
  finalized outcome[] := array(
    select n::outcome from new_outcomes n join old_outcomes o using (payment_id) where n.final_at is not null and o.final_at is null);
begin
  perform add_to_revenue(reopened, -1);
  perform cover_defaults(reopened, -1);
  perform add_to_revenue(finalized, 1);
  perform cover_defaults(finalized, 1);
  perform return_loans(finalized);
  return null;
end
$$;

create trigger outcome_changed after update on outcome
  referencing old table as old_outcomes new table as new_outcomes
  for each statement execute function follow_changed_outcomes();
