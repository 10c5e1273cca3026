-- Puts requests on tabs, whose signatures were verified against the very lines that are stored.
--
-- accepted:   durable once the transaction is
-- repeated:   it was, by the same request
-- replayed:   its state bought another request
-- unreserved: more credit must be reserved first
-- late:       its caller hears no answer any more, so nothing is charged
-- closed, mismatch (the tab has other terms or lines), behind (the newest state doesn't cover what is charged)
--
-- deadlines: milliseconds by this server's clock, one a candidate; null: it may take as long as it does.
create or replace function tabs.accept(candidates tabs.candidate[], deadlines float8[] default '{}') returns setof tabs.verdict language plpgsql as $$
#variable_conflict use_column
declare
  c tabs.candidate;
  t tabs.tab;
  r tabs.request;
  v tabs.verdict;
  width integer;      -- lines of the tab with this request
  bought smallint;    -- number of what is bought
  newest bigint[];
  owed bigint[];
  total bigint;
  credited bigint;
  at timestamptz := clock_timestamp(); -- Citus takes no volatile function in an update
begin
  for n in 1 .. cardinality(candidates) loop
    c := candidates[n];
    width := c.known + cardinality(c.splits);
    -- Again, where somebody changes the tab between its being read and being written. A lock would be written to the log.
    loop
      v := (null, null, null, null, null, null, null, null, null);
      select * into t from tabs.tab where payer = c.payer and id = c.tab_id;
      if t.payer is null or cardinality(t.charged) < width then
        if t.payer is null and c.reserved is not null then
          insert into tabs.tab (payer, id, chain_id, token, contract, platform, reward_share, nonce, expires_at, has_code,
            payment_id, reserved, opened_at, used_at)
          values (c.payer, c.tab_id, c.chain_id, c.token, c.contract, c.platform, c.reward_share, c.nonce, c.expires_at,
            c.has_code, c.payment_id, c.reserved, at, at)
          on conflict do nothing;
        end if;
        select * into t from tabs.tab where payer = c.payer and id = c.tab_id for update;
      end if;
      v.payment_id := t.payment_id;
      v.known := coalesce(cardinality(t.charged), 0);
      -- A state that is newer than the newest bought nothing yet.
      if c.sequence <= t.sequence then
        select * into r from tabs.request where payer = c.payer and tab_id = c.tab_id and sequence = c.sequence;
        if r.payer is not null then
          v.verdict := case when r.request_hash = c.request_hash then 'repeated' else 'replayed' end;
          v.line_total := r.line_total;
          v.line_reduced := r.line_reduced;
          v.accepted_at := extract(epoch from r.accepted_at) * 1000;
          v.requests := t.requests;
          exit;
        end if;
      end if;
      v.verdict := case
        when t.payer is null then 'unreserved'
        when t.closed_at is not null then 'closed'
        when t.chain_id <> c.chain_id or t.token <> c.token or t.contract <> c.contract or t.platform <> c.platform
          or t.reward_share <> c.reward_share or t.expires_at <> c.expires_at then 'mismatch'
        when c.known > v.known then 'mismatch'
      end;
      exit when v.verdict is not null;
      -- Somebody else added another line at the same time.
      if c.known < v.known and width > c.known and exists (
        select from tabs.line l where l.payer = c.payer and l.tab_id = c.tab_id and l.position >= c.known and l.position < width
          and l.split <> c.splits[l.position - c.known + 1]
      ) then
        v.verdict := 'mismatch';
        exit;
      end if;

      owed := t.charged;
      credited := 0;
      for i in v.known .. width - 1 loop
        if i = c.position then
          select amount into credited from tabs.credit
          where payer = c.payer and chain_id = c.chain_id and split = c.splits[i - c.known + 1] for update;
          credited := coalesce(credited, 0);
        end if;
        owed := owed || case when i = c.position then -credited else 0 end;
      end loop;
      owed[c.position + 1] := owed[c.position + 1] + c.price;
      newest := case when c.sequence > t.sequence then c.amounts else coalesce(t.signed, t.charged) end;
      total := 0;
      for i in 1 .. cardinality(owed) loop
        if coalesce(newest[i], 0) < owed[i] then
          v.verdict := 'behind';
          exit;
        end if;
        total := total + greatest(owed[i], 0);
      end loop;
      if v.verdict is null and total > greatest(t.reserved, c.reserved) then
        v.verdict := 'unreserved';
      end if;
      if v.verdict is not null then
        -- Nothing was bought on it: it was never opened.
        if t.requests = 0 then delete from tabs.tab where payer = c.payer and id = c.tab_id and requests = 0; end if;
        exit;
      end if;

      update tabs.tab set requests = t.requests + 1, used_at = at, reserved = greatest(t.reserved, c.reserved),
        sequence = greatest(t.sequence, c.sequence), signed = nullif(newest, owed), charged = owed
      -- A plain "closed_at is null" may be looked up in the index of all open tabs.
      where payer = c.payer and id = c.tab_id and requests = t.requests and charged = t.charged
        and closed_at is not distinct from t.closed_at;
      continue when not found;

      -- Whatever it waited for, in a pooler or for the row, is behind it now.
      if deadlines[n] < extract(epoch from clock_timestamp()) * 1000 then
        update tabs.tab set requests = t.requests, used_at = t.used_at, reserved = t.reserved, sequence = t.sequence,
          signed = t.signed, charged = t.charged
        where payer = c.payer and id = c.tab_id;
        if t.requests = 0 then delete from tabs.tab where payer = c.payer and id = c.tab_id and requests = 0; end if;
        v.verdict := 'late';
        exit;
      end if;

      if width > v.known then
        insert into tabs.line (payer, tab_id, position, split, credit)
        select c.payer, c.tab_id, i, c.splits[i - c.known + 1], case when i = c.position then credited else 0 end
        from generate_series(v.known, width - 1) i;
        if credited > 0 then
          delete from tabs.credit
          where payer = c.payer and chain_id = c.chain_id and split = c.splits[c.position - c.known + 1];
          v.credit := credited;
        end if;
      end if;
      v.verdict := 'accepted';
      v.line_total := greatest(owed[c.position + 1], 0);
      v.line_reduced := nullif(t.reduced[c.position + 1], 0);
      v.accepted_at := extract(epoch from at) * 1000;
      v.known := cardinality(owed);
      v.requests := t.requests + 1;
      v.charged := total;
      select number into bought from tabs.item
      where payer = c.payer and tab_id = c.tab_id and position = c.position and endpoint_id = c.endpoint_id;
      if bought is null then
        insert into tabs.item (payer, tab_id, number, position, provider_id, endpoint_id)
        select c.payer, c.tab_id, coalesce(max(i.number) + 1, 0), c.position, c.provider_id, c.endpoint_id
        from tabs.item i where i.payer = c.payer and i.tab_id = c.tab_id
        returning number into bought;
      end if;
      insert into tabs.request (price, line_total, line_reduced, accepted_at, sequence, item, payer, tab_id, request_hash, signature)
      values (c.price, v.line_total, v.line_reduced, at, c.sequence, bought, c.payer, c.tab_id, c.request_hash, c.signature);
      exit;
    end loop;
    return next v;
  end loop;
end
$$;
