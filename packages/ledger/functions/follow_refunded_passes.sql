-- Ends passes in the transaction that accepts a refund of their payments.
create or replace function follow_refunded_passes() returns trigger language plpgsql as $$
begin
  perform follow_passes(array[new.payment_id]);
  return null;
end
$$;

create trigger refund_total_passes after insert or update of amount on refund_total
  for each row execute function follow_refunded_passes();
