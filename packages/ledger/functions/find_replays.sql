-- Returns the ids of candidates that are replays. A candidate is a replay if the nonce of one of its authorizations belongs to
-- - a stored authorization of its payer,
-- - an earlier candidate of its payer in the group (tabs first, then by id), or
-- - another open tab of its payer.
-- A tab is also a replay if another payment of its payer has the tab's id.
--
-- The payers' rows are locked, so no concurrent call stores an authorization of these payers or claims a tab for them. Authorizations are looked up
-- one by one, because a plan that joins the tables would read all authorizations ever signed.
create or replace function find_replays(candidates candidate[], authorizations candidate_authorization[], over_limit text[])
returns text[] language plpgsql stable as $$
begin
  return coalesce((
    select array_agg(distinct known.id)
    from (
      select c.id, c.payer, c.tab_id, authorization_key(c.chain_id, c.token, c.payer, a.nonce) as key,
        row_number() over (partition by c.chain_id, c.token, c.payer, a.nonce order by c.tab_id is null, c.id) as occurrence
      from unnest(authorizations) as a
      join unnest(candidates) as c on c.id = a.payment_id
      where c.id <> all (over_limit)
    ) known
    where occurrence > 1 or (
      select true from signed_authorization s
      where authorization_key(s.chain_id, s.token, s.authorizer, s.nonce) = known.key limit 1
    ) or (
      select true from tab_claim t
      where authorization_key(t.chain_id, t.token, t.payer, t.nonce) = known.key and t.tab_id is distinct from known.tab_id limit 1
    ) or known.tab_id is not null and (
      select true from tab_payment t where t.payer = known.payer and t.tab_id = known.tab_id limit 1
    )
  ), '{}');
end
$$;
