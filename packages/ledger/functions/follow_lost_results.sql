-- Updates the sums, the defaults that the platform bears, and passes when results are deleted.
create or replace function follow_lost_results() returns trigger language plpgsql as $$
begin
  perform add_to_revenue(array(select o::payment_result from old_results o where o.final_at is not null), -1);
  perform cover_defaults(array(select o::payment_result from old_results o where o.final_at is not null), -1);
  perform follow_passes(array(select o.payment_id from old_results o));
  return null;
end
$$;

create trigger payment_result_lost after delete on payment_result
  referencing old table as old_results for each statement execute function follow_lost_results();
