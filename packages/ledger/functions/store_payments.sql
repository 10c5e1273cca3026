-- Stores all candidates that weren't refused, and returns the ids of the stored payments. It doesn't store a candidate if another payment
-- has the same challenge or payment identifier.
--
-- Payments are inserted in order of request_id, so that concurrent calls can't deadlock.
create or replace function store_payments(
  candidates candidate[], authorizations candidate_authorization[], refused text[]
) returns text[] language plpgsql as $$
declare
  stored text[];
  misnamed text[];
begin
  insert into queue_group (chain_id, token, fee_recipient)
  select distinct c.chain_id, c.token, c.fee_recipient from unnest(candidates) as c
  where not exists (
    select from queue_group g
    where g.chain_id = c.chain_id and g.token = c.token and g.fee_recipient = c.fee_recipient
  )
  order by 1, 2, 3
  on conflict do nothing;

  with inserted as (
    insert into payment (id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier, effective_rate, resource,
      challenged_at, accepted_at)
    select id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier,
      effective_rate, resource, to_timestamp(challenged_at / 1000), to_timestamp(accepted_at / 1000)
    from unnest(candidates) as c
    where id <> all (refused)
    order by request_id
    on conflict (request_id) do nothing
    returning id, chain_id, token, payer
  ), queued as (
    insert into queue (payment_id, group_id, stage, next_at, due_at, submission, provider_id, payer, payee,
      provider_amount, fee_amount, accepted_at, valid_before, has_code, is_tab, may_be_voided)
    select i.id, g.id, c.stage, to_timestamp(c.next_at / 1000), to_timestamp(c.due_at / 1000), c.submission, c.provider_id,
      c.payer, c.payee, c.provider_amount, c.fee_amount, to_timestamp(coalesce(c.waits_since, c.accepted_at) / 1000),
      c.valid_before, c.has_code, c.tab_id is not null,
      exists (select from provider p where p.id = c.provider_id and p.own_middleware)
    from unnest(candidates) as c
    join inserted i on i.id = c.id
    join queue_group g on g.chain_id = c.chain_id and g.token = c.token and g.fee_recipient = c.fee_recipient
  ), presented as (
    insert into presentation (payment_id, request_hash, idempotency_key, signature, fee_signature)
    select i.id, decode(c.request_hash, 'hex'), c.idempotency_key,
      decode(substr(provider.signature, 3), 'hex'), decode(substr(fee.signature, 3), 'hex')
    from unnest(candidates) as c
    join inserted i on i.id = c.id
    join unnest(authorizations) as provider on provider.payment_id = c.id and provider.half = 0
    left join unnest(authorizations) as fee on fee.payment_id = c.id and fee.half = 1
  ), signed as (
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce, accepted_block)
    select i.id, a.half, i.chain_id, i.token, i.payer, a.recipient, a.value, a.valid_after, a.valid_before, a.nonce,
      a.accepted_block
    from unnest(authorizations) as a
    join inserted i on i.id = a.payment_id
  )
  select coalesce(array_agg(id), '{}') into stored from inserted;

  if exists (select from unnest(candidates) as c where c.pass_seconds is not null) then
    insert into pass (payment_id, provider_id, endpoint_id, payer, bound_to, starts_at, ends_at, requests, used)
    select c.id, c.provider_id, c.endpoint_id, c.payer, c.pass_bound_to, to_timestamp(c.accepted_at / 1000),
      -- In whole seconds, as in the signed pass.
      to_timestamp(floor(c.accepted_at / 1000) + c.pass_seconds), c.pass_requests,
      -- The request that bought the pass counts as its first request.
      case when c.pass_requests is null then 0 else 1 end
    from unnest(candidates) as c
    where c.pass_seconds is not null and c.id = any (stored);
  end if;

  if 'facilitator' = any (select source from unnest(candidates)) then
    with facilitated as (
      insert into facilitation (payment_id, provider_id, payer, payment_identifier)
      select c.id, c.facilitator_provider_id, c.payer, c.payment_identifier
      from unnest(candidates) as c
      where c.source = 'facilitator' and c.id = any (stored)
      on conflict do nothing
      returning payment_id
    )
    select array_agg(c.id) into misnamed
    from unnest(candidates) as c
    where c.source = 'facilitator' and c.id = any (stored) and not exists (select from facilitated where payment_id = c.id);
    -- Delete the payments whose payment identifier belongs to another payment. Skip the deletion if there are none, because its trigger would run
    -- anyway.
    if misnamed is not null then
      delete from payment where id = any (misnamed);
      stored := array(select unnest(stored) except select unnest(misnamed));
    end if;
  end if;
  return stored;
end
$$;
