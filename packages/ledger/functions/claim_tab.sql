-- Claims a tab's id and nonce for one payer. Once something is bought on the tab, the claim is permanent. A client chooses the id, so
-- without the claim two payers could have tabs with the same id.
--
-- The caller has locked the payer's row, so no concurrent call stores an authorization of this payer or claims another tab for it.
--
-- Returns:
-- claimed: the tab is new, and now claimed
-- held:    the payer claimed it before, and credit is reserved for it; the reservation is locked
-- ended:   the payer claimed it before, and the tab has ended
-- taken:   the id belongs to another payer, or to a tab of this payer on another network
-- spent:   a payment uses the nonce
create or replace function claim_tab(tab text, chain integer, of_token text, of_payer text, of_nonce text) returns text
language plpgsql as $$
begin
  insert into tab_claim (tab_id, chain_id, token, payer, nonce) values (tab, chain, of_token, of_payer, of_nonce)
  on conflict do nothing;
  if found then
    perform from signed_authorization s
    where authorization_key(s.chain_id, s.token, s.authorizer, s.nonce) = authorization_key(chain, of_token, of_payer, of_nonce);
    if not found then return 'claimed'; end if;
    delete from tab_claim where tab_id = tab;
    return 'spent';
  end if;
  perform from tab_claim where tab_id = tab and payer = of_payer and chain_id = chain and token = of_token;
  if not found then return 'taken'; end if;
  perform from tab_reservation where payer = of_payer and tab_id = tab for update;
  return case when found then 'held' else 'ended' end;
end
$$;
