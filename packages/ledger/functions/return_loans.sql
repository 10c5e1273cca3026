-- Returns what tabs were lent to the budgets it came from, once all that they were to settle has settled finally. What failed stays
-- drawn: it is lost, so on each day what is lost and what is outstanding together never exceed the budget. A reorg of final blocks
-- doesn't draw it again.
--
-- Budgets are locked in the order of their days, so that concurrent calls can't deadlock.
create or replace function return_loans(ended outcome[]) returns void language plpgsql as $$
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
