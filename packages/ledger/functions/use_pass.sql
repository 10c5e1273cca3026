-- Counts one request on a pass, once for each use_id, and returns the number of requests left. The pass's row is locked first, so
-- concurrent requests are counted sequentially. Even if this function has a bug, the constraint
-- pass_is_not_overused rejects an excess request.
--
-- verdict: counted, repeated (already counted), returned (returned earlier, and not counted again), used_up, ended, expired, unknown
create or replace function use_pass(
  asked_payment text, asked_provider text, asked_use uuid, asked_at timestamptz, out verdict text, out left_over integer
) language plpgsql as $$
declare
  found_pass pass;
  known pass_use;
begin
  select * into found_pass from pass
  where payment_id = asked_payment and provider_id = asked_provider and requests is not null for update;
  if not found then
    verdict := 'unknown';
    return;
  end if;
  left_over := found_pass.requests - found_pass.used;
  select * into known from pass_use where payment_id = asked_payment and use_id = asked_use;
  verdict := case
    when known.returned_at is not null then 'returned'
    when known.use_id is not null then 'repeated'
    when found_pass.end_reason is not null then 'ended'
    when found_pass.ends_at <= asked_at then 'expired'
    when left_over = 0 then 'used_up'
    else 'counted'
  end;
  if verdict = 'counted' then
    insert into pass_use (payment_id, use_id, used_at) values (asked_payment, asked_use, asked_at);
    update pass set used = used + 1, last_used_at = asked_at where payment_id = asked_payment;
    left_over := left_over - 1;
  end if;
end
$$;
