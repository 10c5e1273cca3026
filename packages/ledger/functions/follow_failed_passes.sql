-- Ends passes whose payments could not be settled, and reopens them if a reorg reverts the failure.
create or replace function follow_failed_passes() returns trigger language plpgsql as $$
begin
  perform follow_passes(array[coalesce(new.payment_id, old.payment_id)]);
  return null;
end
$$;

create trigger settlement_failure_passes after insert or delete on settlement_failure
  for each row execute function follow_failed_passes();
