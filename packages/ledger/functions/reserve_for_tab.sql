-- Reserves a step of credit for a tab. It counts as owed as long as the tab is open.
--
-- payer_limit: the maximum for accepted_total (balance or credit, plus what is no longer owed); null: no limit
-- earned_limit: the maximum for accepted_total by what has settled of this payer alone; null: nothing has. The part of the step above
--   it is lent.
-- budget: the maximum that all payers together may be lent on this day; null: no limit
--
-- Returns the total reserved for the tab with the verdict `reserved`. Any other verdict reserves and lends nothing:
--
-- limit: the payer's limit or the budget was reached
-- ended, taken, spent: as claim_tab returns them
create or replace function reserve_for_tab(tab text, chain integer, of_token text, of_payer text, of_nonce text, step numeric,
  payer_limit numeric, earned_limit numeric, budget numeric, on_day date, out verdict text, out total numeric)
language plpgsql as $$
declare
  accepted numeric;
  lent numeric;
  claim text;
begin
  insert into payer as p (chain_id, token, address, accepted_total)
  select chain, of_token, of_payer, step where payer_limit is null or step <= payer_limit
  on conflict (chain_id, token, address) do update set accepted_total = p.accepted_total + excluded.accepted_total
    where payer_limit is null or p.accepted_total + excluded.accepted_total <= payer_limit
  returning accepted_total into accepted;
  if not found then
    verdict := 'limit';
    return;
  end if;
  claim := claim_tab(tab, chain, of_token, of_payer, of_nonce);
  if claim not in ('claimed', 'held') then
    verdict := claim;
  else
    lent := case when earned_limit is null then step else least(step, accepted - earned_limit) end;
    if budget is not null and lent > 0 then
      -- A drawer like those for gas: the statement that adds to it checks its limit, so concurrent calls can't exceed it.
      insert into gas_draw as d (day, drawer, drawn) select on_day, 'tab_credit', lent where lent <= budget
      on conflict (day, drawer) do update set drawn = d.drawn + excluded.drawn where d.drawn + excluded.drawn <= budget;
      if not found then verdict := 'limit'; end if;
    end if;
  end if;
  if verdict is not null then
    update payer set accepted_total = accepted_total - step
    where chain_id = chain and token = of_token and address = of_payer;
    if claim = 'claimed' then delete from tab_claim where tab_id = tab; end if;
    return;
  end if;
  insert into tab_reservation as r (payer, tab_id, chain_id, token, reserved) values (of_payer, tab, chain, of_token, step)
  on conflict (payer, tab_id) do update set reserved = r.reserved + excluded.reserved, reserved_at = now()
  returning reserved into total;
  verdict := 'reserved';
end
$$;
