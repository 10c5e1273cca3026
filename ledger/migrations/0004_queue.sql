-- The queue is read by its indexes alone: how much waits makes no difference to how fast a batch is claimed.

-- Stands in an open batch. Follows from batch_item; kept here by the triggers below so that an index can leave it out.
alter table payment add column is_claimed boolean not null default false;
update payment set is_claimed = true where id in (select payment_id from batch_item where active);

-- What waits: wanted, in no batch, and not put off. For counts and sums of one provider wallet …
create index payment_waiting on payment (chain_id, token, fee_recipient, payee) include (provider_amount)
  where concluded_at is null and failed_at is null and voided_at is null and not is_claimed and next_attempt_at is null;
-- … the oldest …
create index payment_oldest on payment (chain_id, token, fee_recipient, accepted_at, id)
  where concluded_at is null and failed_at is null and voided_at is null and not is_claimed and next_attempt_at is null;
-- … and the greatest. Micropayments aren't in it.
create index payment_greatest on payment (chain_id, token, fee_recipient, (provider_amount + fee_amount))
  where concluded_at is null and failed_at is null and voided_at is null and not is_claimed and next_attempt_at is null
    and provider_amount + fee_amount >= 1000000;
-- What comes back to the queue at a given time.
create index payment_put_off on payment (chain_id, token, fee_recipient, next_attempt_at)
  where concluded_at is null and failed_at is null and voided_at is null and not is_claimed
    and next_attempt_at is not null;
drop index payment_expiry;
create index payment_expiry on payment (chain_id, valid_before)
  where concluded_at is null and failed_at is null and voided_at is null and not is_claimed;

create function claim_payments() returns trigger language plpgsql as $$
begin
  update payment set is_claimed = true
  where id in (select payment_id from changed where active and payment_id is not null) and not is_claimed;
  return null;
end
$$;

create function release_payments() returns trigger language plpgsql as $$
begin
  update payment set is_claimed = false
  where id in (select payment_id from changed where not active and payment_id is not null) and is_claimed
    and not exists (select from batch_item i where i.payment_id = payment.id and i.active);
  return null;
end
$$;

create function release_deleted_payments() returns trigger language plpgsql as $$
begin
  update payment set is_claimed = false
  where id in (select payment_id from changed where payment_id is not null) and is_claimed
    and not exists (select from batch_item i where i.payment_id = payment.id and i.active);
  return null;
end
$$;

create trigger batch_item_claims after insert on batch_item
  referencing new table as changed for each statement execute function claim_payments();
create trigger batch_item_releases after update on batch_item
  referencing new table as changed for each statement execute function release_payments();
create trigger batch_item_deleted after delete on batch_item
  referencing old table as changed for each statement execute function release_deleted_payments();
