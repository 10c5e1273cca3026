-- Keeps the sums, what the platform bears of defaults, and what tabs were lent in step with outcomes that are inserted.
create or replace function follow_new_outcomes() returns trigger language plpgsql as $$
begin
  perform add_to_revenue(array(select n::outcome from new_outcomes n where n.final_at is not null), 1);
  perform cover_defaults(array(select n::outcome from new_outcomes n where n.final_at is not null), 1);
  perform return_loans(array(select n::outcome from new_outcomes n where n.final_at is not null));
  return null;
end
$$;

create trigger outcome_added after insert on outcome
  referencing new table as new_outcomes for each statement execute function follow_new_outcomes();
