-- Returns the loans of tabs to the budgets they came from, once the tabs have settled completely and their results are final. Loans of failed
-- tabs stay drawn, because that money is lost. So on each day, lost and outstanding loans together never exceed the budget. A reorg of final blocks
-- doesn't draw returned loans again.
--
-- Budgets are locked in the order of their days, so that concurrent calls can't deadlock.
create or replace function return_loans(ended payment_result[]) returns void language plpgsql as $$
declare
  returned record;
begin
  for returned in
    with gone as (
      delete from tab_loan l using unnest(ended) o, tab_payment t
      where o.kind = 'settled' and not o.is_partial and t.payment_id = o.payment_id and l.payer = t.payer and l.tab_id = t.tab_id
      returning l.day, l.money, l.amount
    )
    select day, money, sum(amount) as amount from gone group by 1, 2 order by 1, 2
  loop
    update tab_budget set lent = lent - returned.amount where day = returned.day and money = returned.money;
  end loop;
end
$$;
