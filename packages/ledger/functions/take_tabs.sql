-- Stores the payments of closed tabs, which replace the tabs' reservations. Payments that are already stored stay unchanged.
--
-- accept_payments stores them like any other payments, and locks their payers first. This function adds the rows that only tabs have.
--
-- Returns the payment ids of the tabs that can't become payments, because another payment of the payer uses the tab's nonce or id. The reservations
-- of these tabs are kept, and the caller ends them. Acceptance prevents both cases (claim_tab.sql), so this is only a fallback. It doesn't raise an
-- exception, because each attempt to import the tab would raise it again.
create or replace function take_tabs(candidates candidate[], authorizations candidate_authorization[], tabs tab_payment[],
  lines tab_line[], sales sold_on_tab[]) returns text[] language plpgsql as $$
declare
  replayed text[]; -- refused now, or stored earlier
  refused text[];
begin
  replayed := array(select a.refused_id from accept_payments(candidates, authorizations) a);
  -- A payment that is already stored is refused as a replay of itself. This must be a separate statement, so that it sees payments that a
  -- concurrent call committed while this call waited.
  refused := array(select r.id from unnest(replayed) as r (id) where not exists (select from payment p where p.id = r.id));

  insert into tab_payment select t.* from unnest(tabs) t where t.payment_id <> all (replayed);
  insert into tab_line select l.* from unnest(lines) l where l.payment_id <> all (replayed);
  insert into tab_sale (payment_id, number, position, provider_id, endpoint_id, chain_id, payer, payee, requests,
    provider_amount, fee_amount, accepted_at)
  select s.* from unnest(sales) s where s.payment_id <> all (replayed);

  insert into outbox (event, provider_id, payment_id, data)
  select 'tab.closed', told.provider_id, c.id, told.data || jsonb_build_object(
    'network', n.name, 'closedAt', iso_time(to_timestamp(c.accepted_at / 1000)))
  from unnest(candidates) c left join network n on n.chain_id = c.chain_id cross join lateral event_shares(c.id) told
  where c.id <> all (replayed)
  order by c.id, told.provider_id;

  perform end_reservation(t.payer, t.tab_id, t.charged) from (
    select c.payer, c.tab_id, (select sum(l.charged) from unnest(lines) l where l.payment_id = c.payment_id) as charged
    from unnest(tabs) c where c.payment_id <> all (refused) order by 1, 2
  ) t;
  return refused;
end
$$;
