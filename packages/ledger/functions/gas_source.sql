-- The drawer that pays for a payment's gas on a chain if no fee carries it, and the drawer's limit: the grant of its provider, or the
-- common allowance if the provider has no grant. Test networks have drawers of their own, so that test payments use up nothing of what
-- is there for real ones.
--
-- of_provider: the provider's id, or the drawer that the payment drew from before
create or replace function gas_source(of_provider text, common numeric, chain integer) returns table (drawer text, most numeric)
language sql stable as $$
  select coalesce(max(p.id), 'common') || case when exists (
      select from network n where n.chain_id = chain and n.is_testnet
    ) then ':test' else '' end,
    coalesce(max(p.gas_grant), common)
  from provider p where p.id = split_part(of_provider, ':', 1) and p.gas_grant > 0
$$;
