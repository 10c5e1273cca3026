-- Stores payments that passed every check but two: whether they are new, and whether their payers' limits cover them.
-- What happens to one of them doesn't touch the others. A function, so that a group is one round trip and one commit,
-- whose locks no slow client can prolong (ledger/acceptPayments.ts).
--
-- Concurrent calls can't deadlock: payers are locked first, in order, and payments are inserted in order of request_id.
--
-- Returns only those that were not accepted: 'over_limit', or 'replayed' (challenge or authorization stored before).
create function accept_payments(given json) returns table (refused_id text, reason text) language plpgsql as $$
declare
  candidate record;
  over_limit text[] := '{}';
  replayed text[];
begin
  for candidate in
    select g.id, g.chain_id, g.token, g.payer, g.payer_limit, g.provider_amount + g.fee_amount as total
    from json_to_recordset(given) as g (id text, chain_id int, token text, payer text, payer_limit numeric,
      provider_amount numeric, fee_amount numeric)
    order by g.chain_id, g.token, g.payer
  loop
    insert into payer as p (chain_id, token, address, accepted_total)
    select candidate.chain_id, candidate.token, candidate.payer, candidate.total
    where candidate.payer_limit is null or candidate.total <= candidate.payer_limit
    on conflict (chain_id, token, address) do update
      set accepted_total = p.accepted_total + excluded.accepted_total
      where candidate.payer_limit is null or p.accepted_total + excluded.accepted_total <= candidate.payer_limit;
    if not found then over_limit := over_limit || candidate.id; end if;
  end loop;

  with fitting as materialized (
    select g.* from json_to_recordset(given) as g (
      id text, request_id text, provider_id text, endpoint_id text, chain_id int, token text, payer text,
      payer_has_code boolean, price numeric, tier text, effective_rate text, resource text, receipt text,
      idempotency_key text, request_hash text, challenged_at float8, accepted_at float8,
      payee text, provider_amount numeric, valid_after bigint, valid_before bigint, nonce text, signature text,
      accepted_block bigint,
      fee_recipient text, fee_amount numeric, fee_valid_after bigint, fee_valid_before bigint, fee_nonce text,
      fee_signature text, fee_accepted_block bigint
    )
    where g.id <> all (over_limit)
    order by g.request_id
  ), inserted as (
    insert into payment (id, request_id, provider_id, endpoint_id, chain_id, token, payer, payer_has_code, payee,
      fee_recipient, provider_amount, fee_amount, valid_before, price, tier, effective_rate, resource, receipt,
      idempotency_key, request_hash, challenged_at, accepted_at)
    select id, request_id, provider_id, endpoint_id, chain_id, token, payer, payer_has_code, payee,
      fee_recipient, provider_amount, fee_amount, least(valid_before, fee_valid_before), price, tier,
      effective_rate, resource, receipt, idempotency_key, decode(request_hash, 'hex'),
      to_timestamp(challenged_at / 1000), to_timestamp(accepted_at / 1000)
    from fitting
    on conflict do nothing
    returning id
  ), signed as (
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce, signature, accepted_block)
    select id, half, chain_id, token, payer, recipient, value, since, until, own_nonce,
      decode(substr(own_signature, 3), 'hex'), own_block
    from fitting
    join inserted using (id)
    cross join lateral (values
      (0, payee, provider_amount, valid_after, valid_before, nonce, signature, accepted_block),
      (1, fee_recipient, fee_amount, fee_valid_after, fee_valid_before, fee_nonce, fee_signature, fee_accepted_block)
    ) as halves (half, recipient, value, since, until, own_nonce, own_signature, own_block)
    on conflict do nothing
    returning payment_id
  )
  select array_agg(f.id) into replayed
  from fitting f
  where (select count(*) from signed s where s.payment_id = f.id) < 2;

  if replayed is not null then
    -- Of one whose authorization was known, the payment itself went in.
    delete from payment where id = any (replayed);
    update payer p set accepted_total = p.accepted_total - taken.total
    from (
      select g.chain_id, g.token, g.payer, sum(g.provider_amount + g.fee_amount) as total
      from json_to_recordset(given)
        as g (id text, chain_id int, token text, payer text, provider_amount numeric, fee_amount numeric)
      where g.id = any (replayed)
      group by 1, 2, 3
    ) taken
    where p.chain_id = taken.chain_id and p.token = taken.token and p.address = taken.payer;
  end if;

  return query
    select unnest(over_limit), 'over_limit'
    union all
    select unnest(replayed), 'replayed';
end
$$;
