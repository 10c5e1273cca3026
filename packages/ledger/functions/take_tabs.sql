-- Stores the payments of closed tabs, each in place of its reservation. Payments that are already stored stay as they are.
--
-- Returns the ids of those that can't become payments, because another payment of the payer has their nonce or their tab's id. They keep
-- their reservations, and the caller ends them. Acceptance prevents both (claim_tab.sql), so this is the last resort: an exception
-- instead would be raised again at each attempt.
create or replace function take_tabs(tabs closed_tab[], lines tab_line[], sales sold_on_tab[]) returns text[] language plpgsql as $$
declare
  new_ids text[];
  refused text[];
begin
  -- In order, so that concurrent calls can't deadlock. While the rows are locked, no authorization of these payers is stored.
  perform from payer p join unnest(tabs) t on p.chain_id = t.chain_id and p.token = t.token and p.address = t.payer
  order by p.chain_id, p.token, p.address for no key update of p;
  refused := array(
    select t.payment_id from unnest(tabs) t
    where not exists (select from payment p where p.id = t.payment_id) and (
      exists (
        select from signed_authorization s
        where authorization_key(s.chain_id, s.token, s.authorizer, s.nonce) = authorization_key(t.chain_id, t.token, t.payer, t.nonce)
      ) or exists (select from tab_payment k where k.payer = t.payer and k.tab_id = t.tab_id)
    )
  );
  insert into queue_group (chain_id, token, fee_recipient)
  select distinct chain_id, token, platform from unnest(tabs) order by 1, 2, 3
  on conflict do nothing;
  with taken as (
    insert into payment (id, source, chain_id, token, payer, payee, fee_recipient, splitter, price, provider_amount, fee_amount,
      valid_before, tier, effective_rate, resource, challenged_at, accepted_at)
    select payment_id, 'tab', chain_id, token, payer, contract, platform, contract, value, provider_amount, fee_amount,
      expires_at, 'tab', trim_scale(trunc(fee_amount / value, 6))::text, tab_id,
      to_timestamp(opened_at / 1000), to_timestamp(closed_at / 1000)
    from unnest(tabs) where payment_id <> all (refused) order by payment_id
    on conflict (id) do nothing
    returning id
  ), own as materialized (
    select t.*, g.id as group_id from taken join unnest(tabs) as t on t.payment_id = taken.id
    join queue_group g on g.chain_id = t.chain_id and g.token = t.token and g.fee_recipient = t.platform
  ), queued as (
    -- It has waited since its first purchase, not since it closed.
    insert into queue (payment_id, group_id, stage, payer, payee, provider_amount, fee_amount, accepted_at, valid_before, has_code,
      is_tab)
    select payment_id, group_id, 'waiting', payer, contract, provider_amount, fee_amount, to_timestamp(opened_at / 1000),
      expires_at, has_code, true
    from own
  ), presented as (
    insert into presentation (payment_id, request_hash, signature)
    select payment_id, sha256(tab_id::bytea), decode(substr(signature, 3), 'hex') from own
  ), signed as (
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after, valid_before, nonce)
    select payment_id, 0, chain_id, token, payer, contract, value, 0, expires_at, nonce from own
  ), kept as (
    insert into tab_payment (payment_id, payer, tab_id, sequence, reward_share, requests, close_reason, opened_at)
    select payment_id, payer, tab_id, sequence, reward_share, requests, close_reason, to_timestamp(opened_at / 1000) from own
  ), lined as (
    insert into tab_line select l.* from unnest(lines) l join own using (payment_id)
  ), sold as (
    insert into tab_sale (payment_id, number, position, provider_id, endpoint_id, chain_id, payer, payee, requests,
      provider_amount, fee_amount, accepted_at)
    select s.* from unnest(sales) s join own using (payment_id)
  )
  select array_agg(payment_id) into new_ids from own;
  insert into outbox (event, provider_id, payment_id, data)
  select 'tab.closed', told.provider_id, t.payment_id, told.data || jsonb_build_object(
    'network', network_name(t.chain_id), 'closedAt', iso_time(to_timestamp(t.closed_at / 1000)))
  from unnest(tabs) t cross join lateral event_shares(t.payment_id) told
  where t.payment_id = any(new_ids)
  order by t.payment_id, told.provider_id;
  perform end_reservation(t.payer, t.tab_id, t.charged) from (
    select c.payer, c.tab_id, (select sum(l.charged) from unnest(lines) l where l.payment_id = c.payment_id) as charged
    from unnest(tabs) c where c.payment_id <> all (refused) order by 1, 2
  ) t;
  return refused;
end
$$;
