-- Stores payments that passed every check but two: whether they are new, and whether their payers' limits cover them.
-- A refused one doesn't affect the others. A function, so that a group is one round trip and one commit, and no slow
-- client holds its locks (packages/ledger/acceptance/acceptPayments.ts).
--
-- Concurrent calls can't deadlock: payers are locked first, in order, and payments are inserted in order of request_id.
--
-- Returns only the refused ones: 'over_limit', 'replayed' (its challenge, payment identifier or an authorization is already
-- stored), 'gas_not_covered' or 'late'.
create or replace function accept_payments(candidates candidate[], authorizations candidate_authorization[])
returns table (refused_id text, reason text) language plpgsql as $$
declare
  candidate candidate;
  reserving record;
  over_limit text[] := '{}';
  replayed text[] := '{}';
  misnamed text[];
  uncovered text[] := '{}';
  has_gas boolean := false;
  late text[];
  has_facilitation boolean := false;
  has_splitter boolean := false;
begin
  for reserving in
    select c.chain_id, c.token, c.payer, sum(c.provider_amount + c.fee_amount) as total, min(c.payer_limit) as least,
      array_agg(c) as candidates, bool_or(c.source = 'facilitator') as has_facilitation, bool_or(c.splitter is not null) as has_splitter,
      bool_or(c.gas_amount is not null) as has_gas
    from unnest(candidates) as c group by 1, 2, 3 order by 1, 2, 3
  loop
    -- All of a payer's at once, as a rule; one by one where its limit doesn't cover them all.
    insert into payer as p (chain_id, token, address, accepted_total)
    select reserving.chain_id, reserving.token, reserving.payer, reserving.total
    where reserving.least is null or reserving.total <= reserving.least
    on conflict (chain_id, token, address) do update
      set accepted_total = p.accepted_total + excluded.accepted_total
      where reserving.least is null or p.accepted_total + excluded.accepted_total <= reserving.least;
    if not found then
      foreach candidate in array reserving.candidates loop
        insert into payer as p (chain_id, token, address, accepted_total)
        select candidate.chain_id, candidate.token, candidate.payer, candidate.provider_amount + candidate.fee_amount
        where candidate.payer_limit is null or candidate.provider_amount + candidate.fee_amount <= candidate.payer_limit
        on conflict (chain_id, token, address) do update
          set accepted_total = p.accepted_total + excluded.accepted_total
          where candidate.payer_limit is null or p.accepted_total + excluded.accepted_total <= candidate.payer_limit;
        if not found then over_limit := over_limit || candidate.id; end if;
      end loop;
    end if;
    has_facilitation := has_facilitation or reserving.has_facilitation;
    has_splitter := has_splitter or reserving.has_splitter;
    has_gas := has_gas or reserving.has_gas;
  end loop;

  insert into queue_group (chain_id, token, fee_recipient)
  select distinct c.chain_id, c.token, c.fee_recipient from unnest(candidates) as c
  where not exists (
    select from queue_group g
    where g.chain_id = c.chain_id and g.token = c.token and g.fee_recipient = c.fee_recipient
  )
  order by 1, 2, 3
  on conflict do nothing;

  -- The payers' rows are locked: nobody else stores an authorization of theirs meanwhile. Looked up one by one, since a plan
  -- that joins the tables would read all that was ever signed.
  select array_agg(distinct known.id) into replayed
  from (
    select c.id, authorization_key(c.chain_id, c.token, c.payer, a.nonce) as key,
      row_number() over (partition by c.chain_id, c.token, c.payer, a.nonce order by c.id) as occurrence
    from unnest(authorizations) as a
    join unnest(candidates) as c on c.id = a.payment_id
    where c.id <> all (over_limit)
  ) known
  where occurrence > 1 or (
    select true from signed_authorization s
    where authorization_key(s.chain_id, s.token, s.authorizer, s.nonce) = known.key limit 1
  );
  replayed := coalesce(replayed, '{}');

  with inserted as (
    insert into payment (id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier, effective_rate, resource,
      challenged_at, accepted_at)
    select id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier,
      effective_rate, resource, to_timestamp(challenged_at / 1000), to_timestamp(accepted_at / 1000)
    from unnest(candidates) as c
    where id <> all (over_limit) and id <> all (replayed)
    order by request_id
    on conflict (request_id) do nothing
    returning id, chain_id, token, payer
  ), queued as (
    insert into queue (payment_id, group_id, stage, next_at, due_at, submission, provider_id, payer, payee,
      provider_amount, fee_amount, accepted_at, valid_before, has_code)
    select i.id, g.id, c.stage, to_timestamp(c.next_at / 1000), to_timestamp(c.due_at / 1000), c.submission, c.provider_id,
      c.payer, c.payee, c.provider_amount, c.fee_amount, to_timestamp(c.accepted_at / 1000), c.valid_before, c.has_code
    from unnest(candidates) as c
    join inserted i on i.id = c.id
    join queue_group g on g.chain_id = c.chain_id and g.token = c.token and g.fee_recipient = c.fee_recipient
  ), presented as (
    insert into presentation (payment_id, request_hash, idempotency_key, signature, fee_signature)
    select i.id, decode(c.request_hash, 'hex'), c.idempotency_key,
      decode(substr(provider.signature, 3), 'hex'), decode(substr(fee.signature, 3), 'hex')
    from unnest(candidates) as c
    join inserted i on i.id = c.id
    join unnest(accept_payments.authorizations) as provider on provider.payment_id = c.id and provider.half = 0
    left join unnest(accept_payments.authorizations) as fee on fee.payment_id = c.id and fee.half = 1
  ), signed as (
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce, accepted_block)
    select i.id, a.half, i.chain_id, i.token, i.payer, a.recipient, a.value, a.valid_after, a.valid_before, a.nonce,
      a.accepted_block
    from unnest(accept_payments.authorizations) as a
    join inserted i on i.id = a.payment_id
  )
  select replayed || array_agg(c.id) into replayed
  from unnest(candidates) as c
  where c.id <> all (over_limit) and c.id <> all (replayed) and c.id not in (select id from inserted);

  if has_facilitation then
    with facilitated as (
      insert into facilitation (payment_id, provider_id, payer, payment_identifier, fee)
      select c.id, c.facilitator_provider_id, c.payer, c.payment_identifier, c.facilitator_fee
      from unnest(candidates) as c
      where c.source = 'facilitator' and c.id <> all (over_limit) and c.id <> all (replayed)
      on conflict do nothing
      returning payment_id
    )
    select coalesce(array_agg(c.id), '{}') into misnamed
    from unnest(candidates) as c
    where c.source = 'facilitator' and c.id <> all (over_limit) and c.id <> all (replayed)
      and not exists (select from facilitated where payment_id = c.id);
    -- Its payment identifier is another payment's.
    if misnamed <> '{}' then delete from payment where id = any (misnamed); end if;
    replayed := replayed || misnamed;
  end if;

  if has_gas then
    -- Last, because others wait for the drawer.
    select coalesce(array_agg(drawn.id) filter (where not drawn.is_covered), '{}') into uncovered
    from (
      select c.id, draw_gas(c.id, source.drawer, source.most, c.gas_amount,
        (to_timestamp(c.accepted_at / 1000) at time zone 'UTC')::date) as is_covered
      from unnest(candidates) as c cross join lateral gas_source(c.gas_provider_id, c.gas_common) as source
      where c.gas_amount is not null and c.id <> all (over_limit) and c.id <> all (replayed)
      order by source.drawer
    ) drawn;
    if uncovered <> '{}' then delete from payment where id = any (uncovered); end if;
  end if;

  -- Whatever it waited for, in a pooler or for a lock, is behind it now. (A deletion of nothing costs its trigger all the same.)
  select coalesce(array_agg(c.id), '{}') into late
  from unnest(candidates) as c
  where c.deadline < extract(epoch from clock_timestamp()) * 1000
    and c.id <> all (over_limit) and c.id <> all (replayed) and c.id <> all (uncovered);
  if late <> '{}' then delete from payment where id = any (late); end if;

  if replayed || uncovered || late <> '{}' then
    update payer p set accepted_total = p.accepted_total - taken.total
    from (
      select c.chain_id, c.token, c.payer, sum(c.provider_amount + c.fee_amount) as total
      from unnest(candidates) as c
      where c.id = any (replayed || uncovered || late)
      group by 1, 2, 3
    ) taken
    where p.chain_id = taken.chain_id and p.token = taken.token and p.address = taken.payer;
  end if;

  if has_splitter then
    -- In order, so that concurrent calls can't deadlock; whoever comes later finds them.
    insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
    select distinct on (c.chain_id, c.token, c.splitter) c.chain_id, c.token, c.splitter, c.payee, c.fee_recipient,
      c.provider_share, c.platform_share
    from unnest(candidates) as c
    where c.splitter is not null and not exists (
      select from splitter s where s.chain_id = c.chain_id and s.token = c.token and s.address = c.splitter
    )
    order by c.chain_id, c.token, c.splitter
    on conflict do nothing;
  end if;

  return query
    select unnest(over_limit), 'over_limit'
    union all
    select unnest(replayed), 'replayed'
    union all
    select unnest(uncovered), 'gas_not_covered'
    union all
    select unnest(late), 'late';
end
$$;
