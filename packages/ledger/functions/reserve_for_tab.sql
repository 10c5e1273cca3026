-- Reserves a step of credit for a tab. The step counts as owed as long as the tab is open.
--
-- Within the payer's earned credit, a step is 32 prices, so most requests don't write to the payer's row. Beyond earned credit, a step is a loan from
-- the day's budget, which all payers share. The first such step is one price. Each further step doubles the tab's reservation, up to 32 prices per
-- step. So a tab reserves at most about twice the amount that is bought on it. A step covers at least all requests that wait for it. If less credit
-- is left, the step is all of the remaining credit. If the remaining credit is less than one price, the verdict is `limit`.
--
-- wanted: the prices of all requests that wait for this step
-- payer_limit: the maximum for accepted_total (balance or credit, plus the accepted amounts that are no longer owed); null: no limit
-- earned_limit: the maximum for accepted_total within the payer's earned credit; null: none is earned. Any amount above it is lent.
-- budget: the maximum that all payers together may borrow on this day; null: no loans
--
-- With the verdict `reserved`, returns the total reserved for the tab and the total lent for it. With any other verdict, nothing is reserved or lent:
--
-- limit: the payer's limit or the budget was reached
-- ended, taken, spent: as claim_tab returns them
--
-- It locks the payer's row, then the budget's row. So no amount that it reads can change, and concurrent calls can't exceed a limit.
create or replace function reserve_for_tab(tab text, chain integer, of_token text, of_payer text, of_nonce text, price numeric,
  wanted numeric, payer_limit numeric, earned_limit numeric, budget numeric, on_day date, out verdict text, out total numeric, out lent numeric)
language plpgsql as $$
#variable_conflict use_variable
declare
  accepted numeric;
  held numeric;   -- reserved for the tab before this step
  earned numeric; -- the payer's unused earned credit
  lendable numeric := 0;
  step numeric;
  loan numeric;
  claim text;
  of_money text := case when exists (
    select from network n where n.chain_id = chain and n.is_testnet
  ) then 'test' else 'real' end;
begin
  insert into payer as p (chain_id, token, address) values (chain, of_token, of_payer) on conflict do nothing;
  select p.accepted_total into accepted from payer p
  where p.chain_id = chain and p.token = of_token and p.address = of_payer for update;
  claim := claim_tab(tab, chain, of_token, of_payer, of_nonce);
  if claim not in ('claimed', 'held') then
    verdict := claim;
    return;
  end if;
  select r.reserved into held from tab_reservation r where r.payer = of_payer and r.tab_id = tab;
  earned := greatest(0, coalesce(earned_limit - accepted, 0));
  step := greatest(wanted, least(32 * price, greatest(coalesce(held, 0), earned)));
  if step > earned and budget is not null then
    insert into tab_budget as b (day, money, budget) values (on_day, of_money, budget)
    on conflict (day, money) do update set budget = greatest(b.lent, excluded.budget)
    returning b.budget - b.lent into lendable;
  end if;
  step := least(step, earned + lendable, payer_limit - accepted);
  if step < price then
    verdict := 'limit';
    if claim = 'claimed' then delete from tab_claim c where c.tab_id = tab; end if;
    return;
  end if;
  update payer p set accepted_total = accepted + step
  where p.chain_id = chain and p.token = of_token and p.address = of_payer;
  loan := step - earned;
  if loan > 0 then
    update tab_budget b set lent = b.lent + loan where b.day = on_day and b.money = of_money;
    insert into tab_loan as l (payer, tab_id, day, money, amount) values (of_payer, tab, on_day, of_money, loan)
    on conflict (payer, tab_id, day) do update set amount = l.amount + excluded.amount;
  end if;
  insert into tab_reservation as r (payer, tab_id, chain_id, token, reserved) values (of_payer, tab, chain, of_token, step)
  on conflict (payer, tab_id) do update set reserved = r.reserved + excluded.reserved, reserved_at = now()
  returning r.reserved into total;
  select coalesce(sum(l.amount), 0) into lent from tab_loan l where l.payer = of_payer and l.tab_id = tab;
  verdict := 'reserved';
end
$$;
