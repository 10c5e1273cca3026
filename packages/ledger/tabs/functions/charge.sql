-- Reduces a request's charge, or raises it again up to its price. Returns:
--
-- charged: the charge now equals `amount`
-- closed:  the tab is closed, so its charges can't change
-- over:    `amount` exceeds the price, or the line's charges would exceed the amount that the buyer has signed for the line
create or replace function tabs.charge(of_payer bytea, of_tab bytea, of_sequence bigint, amount bigint) returns text
language plpgsql as $$
#variable_conflict use_column
declare
  t tabs.tab;
  r tabs.request;
  i tabs.item;
  less bigint; -- reduction compared with the previous charge
begin
  select * into t from tabs.tab where payer = of_payer and id = of_tab for update;
  select * into r from tabs.request where payer = of_payer and tab_id = of_tab and sequence = of_sequence;
  -- The tab has been deleted in the meantime, long after it was closed.
  if r.payer is null then return 'closed'; end if;
  select * into i from tabs.item where payer = of_payer and tab_id = of_tab and number = r.item;
  if amount > r.price then return 'over'; end if;
  less := coalesce(r.charged, r.price) - amount;
  if less = 0 then return 'charged'; end if;
  if t.closed_at is not null then return 'closed'; end if;
  t.signed := coalesce(t.signed, t.charged);
  t.charged[i.position + 1] := t.charged[i.position + 1] - less;
  -- `coalesce`: the newest state may have fewer lines than the tab.
  if t.charged[i.position + 1] > coalesce(t.signed[i.position + 1], 0) then return 'over'; end if;
  t.reduced := coalesce(t.reduced, array_fill(0::bigint, array[cardinality(t.charged)]));
  t.reduced[i.position + 1] := coalesce(t.reduced[i.position + 1], 0) + less;
  -- A request whose charge is raised counts as bought after all requests that were bought in the meantime, so its line totals are computed again.
  if less < 0 then
    r.line_total := greatest(t.charged[i.position + 1] + r.price - amount, 0);
    r.line_reduced := t.reduced[i.position + 1] - (r.price - amount);
  end if;
  t.bought[3 * i.number + 1] := t.bought[3 * i.number + 1]
    + case when amount > 0 then 1 else 0 end - case when coalesce(r.charged, r.price) > 0 then 1 else 0 end;
  t.bought[3 * i.number + 2] := t.bought[3 * i.number + 2] - less;
  update tabs.request set charged = amount, line_total = r.line_total, line_reduced = nullif(r.line_reduced, 0)
  where payer = of_payer and tab_id = of_tab and sequence = of_sequence;
  update tabs.tab set charged = t.charged, signed = nullif(t.signed, t.charged), reduced = t.reduced, bought = t.bought
  where payer = of_payer and id = of_tab;
  return 'charged';
end
$$;
