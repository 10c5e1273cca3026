-- Returns a counted request to its pass, once. If the request isn't counted yet, it is marked, so that a late call of use_pass doesn't count it.
create or replace function return_pass_use(
  asked_payment text, asked_provider text, asked_use uuid, asked_at timestamptz, out verdict text, out left_over integer
) language plpgsql as $$
declare
  known pass_use;
begin
  perform from pass where payment_id = asked_payment and provider_id = asked_provider and requests is not null for update;
  if not found then
    verdict := 'unknown';
    return;
  end if;
  select * into known from pass_use where payment_id = asked_payment and use_id = asked_use;
  if known.use_id is null then
    insert into pass_use (payment_id, use_id, used_at, returned_at) values (asked_payment, asked_use, asked_at, asked_at);
  elsif known.returned_at is null then
    update pass_use set returned_at = asked_at where payment_id = asked_payment and use_id = asked_use;
    update pass set used = used - 1 where payment_id = asked_payment;
  end if;
  select 'returned', requests - used into verdict, left_over from pass where payment_id = asked_payment;
end
$$;
