-- Reserves a step of credit for a tab. It counts as owed as long as the tab is open.
--
-- payer_limit: the maximum for accepted_total (balance or credit, plus what is no longer owed); null: no limit
-- earned_limit: the maximum for accepted_total by what has settled of this payer alone; null: nothing has. The part of the step above
--   it is lent.
-- budget: the maximum that all payers together may be lent on this day; null: no limit
--
-- Returns the total reserved for the tab; null if a limit was reached, or if the tab belongs to another payer. In the latter case the
-- step is not counted and nothing is lent: otherwise a payer who names another payer's tab could use up the day's budget.
create or replace function reserve_for_tab(tab text, chain integer, of_token text, of_payer text, step numeric, payer_limit numeric,
  earned_limit numeric, budget numeric, on_day date)
returns numeric language plpgsql as $$
declare
  accepted numeric;
  lent numeric;
  total numeric;
begin
  insert into payer as p (chain_id, token, address, accepted_total)
  select chain, of_token, of_payer, step where payer_limit is null or step <= payer_limit
  on conflict (chain_id, token, address) do update set accepted_total = p.accepted_total + excluded.accepted_total
    where payer_limit is null or p.accepted_total + excluded.accepted_total <= payer_limit
  returning accepted_total into accepted;
  if not found then return null; end if;
  lent := case when earned_limit is null then step else least(step, accepted - earned_limit) end;
  if budget is not null and lent > 0 then
    -- A drawer like those for gas: the statement that adds to it checks its limit, so concurrent calls can't exceed it.
    insert into gas_draw as d (day, drawer, drawn) select on_day, 'tab_credit', lent where lent <= budget
    on conflict (day, drawer) do update set drawn = d.drawn + excluded.drawn where d.drawn + excluded.drawn <= budget;
    if not found then
      update payer set accepted_total = accepted_total - step
      where chain_id = chain and token = of_token and address = of_payer;
      return null;
    end if;
  end if;
  insert into tab_reservation as r (tab_id, chain_id, token, payer, reserved) values (tab, chain, of_token, of_payer, step)
  on conflict (tab_id) do update set reserved = r.reserved + excluded.reserved, reserved_at = now()
    where r.payer = excluded.payer and r.chain_id = excluded.chain_id and r.token = excluded.token
  returning reserved into total;
  if total is null then
    update payer set accepted_total = accepted_total - step
    where chain_id = chain and token = of_token and address = of_payer;
    if budget is not null and lent > 0 then
      update gas_draw set drawn = drawn - lent where day = on_day and drawer = 'tab_credit';
    end if;
  end if;
  return total;
end
$$;
