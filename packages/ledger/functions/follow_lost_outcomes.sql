-- Keeps the sums, and what the platform bears of defaults, in step with outcomes that are deleted.
create or replace function follow_lost_outcomes() returns trigger language plpgsql as $$
begin
  perform add_to_revenue(array(select o::outcome from old_outcomes o where o.final_at is not null), -1);
  perform cover_defaults(array(select o::outcome from old_outcomes o where o.final_at is not null), -1);
  return null;
end
$$;

create trigger outcome_lost after delete on outcome
  referencing old table as old_outcomes for each statement execute function follow_lost_outcomes();
