-- Returns an amount of a tab's loans to the budgets they came from, the latest day first. If less than this amount was lent, it returns the whole
-- loan.
--
-- Budgets are locked in the order of their days, so that concurrent calls can't deadlock.
create or replace function reduce_loan(of_payer text, of_tab text, most numeric) returns void language plpgsql as $$
declare
  loan record;
begin
  for loan in
    select l.day, l.money, l.amount, greatest(0, least(l.amount, most - l.later)) as returned
    from (
      select *, coalesce(sum(o.amount) over (order by o.day desc rows between unbounded preceding and 1 preceding), 0) as later
      from tab_loan o where o.payer = of_payer and o.tab_id = of_tab
    ) l
    order by l.day
  loop
    continue when loan.returned = 0;
    update tab_budget set lent = lent - loan.returned where day = loan.day and money = loan.money;
    if loan.returned = loan.amount then
      delete from tab_loan where payer = of_payer and tab_id = of_tab and day = loan.day;
    else
      update tab_loan set amount = amount - loan.returned where payer = of_payer and tab_id = of_tab and day = loan.day;
    end if;
  end loop;
end
$$;
