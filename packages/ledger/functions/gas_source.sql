-- Returns the drawer of gas_draw that pays for a payment's gas if no fee covers it, and the drawer's limit. If the payment's provider has a grant,
-- the drawer is that grant. Otherwise, it is a pool of `common` a day that all providers without a grant share. Test networks have separate drawers,
-- so that test payments don't use up the allowance for real payments.
--
-- of_provider: the provider's id, or the drawer that the payment drew from before
-- pool: 'refunds' for a refund, 'common' for anything else
create or replace function gas_source(of_provider text, common numeric, chain integer, pool text)
returns table (drawer text, most numeric)
language sql stable as $$
  select coalesce(max(p.id), pool) || case when exists (
      select from network n where n.chain_id = chain and n.is_testnet
    ) then ':test' else '' end,
    coalesce(max(p.gas_grant), common)
  from provider p where p.id = split_part(of_provider, ':', 1) and p.gas_grant > 0
$$;
