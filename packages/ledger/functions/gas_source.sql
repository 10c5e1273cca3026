-- The drawer that pays for a payment's gas if no fee carries it, and the drawer's limit: the grant of its provider, or the common
-- allowance if the provider has no grant.
create or replace function gas_source(provider_id text, common numeric) returns table (drawer text, most numeric)
language sql stable as $$
  select coalesce(max(p.id), 'common'), coalesce(max(p.gas_grant), common)
  from provider p where p.id = gas_source.provider_id and p.gas_grant > 0
$$;
