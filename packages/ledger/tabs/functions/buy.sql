-- Writes a request whose amount was judged as covered. Returns its verdict, `accepted` or `late`. Returns null, and writes nothing, if the
-- tab has changed since it was read.
--
-- bought_at: when it is accepted
-- deadline: Unix milliseconds by this server's clock after which its caller no longer waits; null: none
create or replace function tabs.buy(
  c tabs.candidate, t tabs.tab_state, j tabs.judgment, credited bigint, bought_at timestamptz, deadline float8
) returns tabs.verdict language plpgsql as $$
#variable_conflict use_column
declare
  v tabs.verdict;
  known integer := cardinality(t.charged); -- number of lines before this request
  item_number smallint;                    -- number of the item that is bought
  is_new boolean;                          -- whether the item is bought on this tab for the first time
  now_bought bigint[] := t.bought;         -- the tab's `bought` after this request
  tab_opened_at timestamptz;
begin
  select i.number into item_number from tabs.item i
  where i.payer = c.payer and i.tab_id = c.tab_id and i.position = c.position and i.endpoint_id = c.endpoint_id;
  is_new := item_number is null;
  if is_new then
    select coalesce(max(i.number) + 1, 0) into item_number from tabs.item i where i.payer = c.payer and i.tab_id = c.tab_id;
  end if;
  -- The number of a new item is valid only if no other request was written in the meantime. Otherwise the update below finds that the tab
  -- has changed.
  now_bought[3 * item_number + 1] := coalesce(now_bought[3 * item_number + 1], 0) + case when c.price > 0 then 1 else 0 end;
  now_bought[3 * item_number + 2] := coalesce(now_bought[3 * item_number + 2], 0) + c.price;
  now_bought[3 * item_number + 3] := floor(extract(epoch from bought_at) * 1000);

  update tabs.tab set requests = t.requests + 1, used_at = bought_at, reserved = greatest(t.reserved, c.reserved),
    lent = case when c.reserved > t.reserved then c.lent else lent end,
    credit = case when c.reserved > t.reserved then c.payer_credit else credit end,
    sequence = greatest(t.sequence, c.sequence), signed = nullif(j.signed, j.charged), charged = j.charged,
    bought = now_bought
  -- With a plain "closed_at is null", Postgres might search the index of all open tabs instead of using the key.
  where payer = c.payer and id = c.tab_id and requests = t.requests and charged = t.charged and bought = t.bought
    and closed_at is not distinct from t.closed_at
  returning credit, opened_at into v.payer_credit, tab_opened_at;
  if not found then return null; end if;
  v.payment_id := t.payment_id;

  -- Check the deadline here, after all waits for a pooler or the row.
  if deadline < extract(epoch from clock_timestamp()) * 1000 then
    update tabs.tab set requests = t.requests, used_at = t.used_at, reserved = t.reserved, sequence = t.sequence,
      signed = t.signed, charged = t.charged, bought = t.bought
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
  if is_new then
    insert into tabs.item (payer, tab_id, number, position, provider_id, endpoint_id, opened_at)
    values (c.payer, c.tab_id, item_number, c.position, c.provider_id, c.endpoint_id,
      date_trunc('milliseconds', tab_opened_at));
  end if;
  insert into tabs.request (price, line_total, line_reduced, accepted_at, sequence, item, payer, tab_id, request_hash, signature)
  values (c.price, v.line_total, v.line_reduced, bought_at, c.sequence, item_number, c.payer, c.tab_id, c.request_hash, c.signature);
  return v;
end
$$;
