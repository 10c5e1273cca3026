-- Writes a request that was judged to be covered. Returns its verdict, `accepted` or `late`; null if the tab has changed since it was
-- read, and nothing was written.
--
-- bought_at: when it is accepted
-- deadline: milliseconds by this server's clock after which its caller no longer waits; null: none
create or replace function tabs.buy(
  c tabs.candidate, t tabs.tab_state, j tabs.judgment, credited bigint, bought_at timestamptz, deadline float8
) returns tabs.verdict language plpgsql as $$
#variable_conflict use_column
declare
  v tabs.verdict;
  known integer := cardinality(t.charged); -- lines that the tab had before
  bought smallint;                         -- number of what is bought
begin
  update tabs.tab set requests = t.requests + 1, used_at = bought_at, reserved = greatest(t.reserved, c.reserved),
    lent = case when c.reserved > t.reserved then c.lent else lent end,
    credit = case when c.reserved > t.reserved then c.payer_credit else credit end,
    sequence = greatest(t.sequence, c.sequence), signed = nullif(j.signed, j.charged), charged = j.charged
  -- A plain "closed_at is null" may be looked up in the index of all open tabs.
  where payer = c.payer and id = c.tab_id and requests = t.requests and charged = t.charged
    and closed_at is not distinct from t.closed_at
  returning credit into v.payer_credit;
  if not found then return null; end if;
  v.payment_id := t.payment_id;

  -- Every wait, in a pooler or for the row, is over by now.
  if deadline < extract(epoch from clock_timestamp()) * 1000 then
    update tabs.tab set requests = t.requests, used_at = t.used_at, reserved = t.reserved, sequence = t.sequence,
      signed = t.signed, charged = t.charged
    where payer = c.payer and id = c.tab_id;
    v.verdict := 'late';
    v.known := known;
    return v;
  end if;

  if cardinality(j.charged) > known then
    insert into tabs.line (payer, tab_id, position, split, credit)
    select c.payer, c.tab_id, i, c.splits[i - c.known + 1], case when i = c.position then credited else 0 end
    from generate_series(known, cardinality(j.charged) - 1) i;
    if credited > 0 then
      delete from tabs.credit
      where payer = c.payer and chain_id = c.chain_id and split = c.splits[c.position - c.known + 1];
      v.credit := credited;
    end if;
  end if;
  v.verdict := 'accepted';
  v.line_total := greatest(j.charged[c.position + 1], 0);
  v.line_reduced := nullif(t.reduced[c.position + 1], 0);
  v.accepted_at := extract(epoch from bought_at) * 1000;
  v.known := cardinality(j.charged);
  v.requests := t.requests + 1;
  v.charged := j.total;
  select number into bought from tabs.item
  where payer = c.payer and tab_id = c.tab_id and position = c.position and endpoint_id = c.endpoint_id;
  if bought is null then
    insert into tabs.item (payer, tab_id, number, position, provider_id, endpoint_id)
    select c.payer, c.tab_id, coalesce(max(i.number) + 1, 0), c.position, c.provider_id, c.endpoint_id
    from tabs.item i where i.payer = c.payer and i.tab_id = c.tab_id
    returning number into bought;
  end if;
  insert into tabs.request (price, line_total, line_reduced, accepted_at, sequence, item, payer, tab_id, request_hash, signature)
  values (c.price, v.line_total, v.line_reduced, bought_at, c.sequence, bought, c.payer, c.tab_id, c.request_hash, c.signature);
  return v;
end
$$;
