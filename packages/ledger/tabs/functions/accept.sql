-- Adds requests to tabs. The callers have verified the requests' signatures against the stored lines. Returns one verdict per candidate, in order: a
-- verdict of judge_terms or judge_amounts, or one of these:
--
-- accepted: durable once the transaction is committed
-- crowded:  the tab would have more than 8 lines on which nothing was bought
-- voided:   this same request was accepted before and is now charged nothing, so it must not be served for free
-- late:     its caller no longer waits for an answer, so nothing is charged
--
-- deadlines: Unix milliseconds by this server's clock, one per candidate; null: none
create or replace function tabs.accept(candidates tabs.candidate[], deadlines float8[] default '{}')
returns setof tabs.verdict language plpgsql as $$
#variable_conflict use_column
declare
  c tabs.candidate;
  t tabs.tab_state;
  earlier tabs.request; -- the request that was bought with the same state before
  j tabs.judgment;
  v tabs.verdict;
  known integer;        -- number of the tab's lines
  width integer;        -- number of lines including this request's
  has_other_line boolean;
  credited bigint;
  started_at timestamptz := clock_timestamp(); -- a variable, because Citus rejects volatile functions in an update
begin
  for n in 1 .. cardinality(candidates) loop
    c := candidates[n];
    width := c.known + cardinality(c.splits);
    -- Reads the tab without a lock, because a lock would write to the WAL. If the tab changes before the write, repeat.
    loop
      select payment_id, chain_id, token, contract, platform, reward_share, expires_at, closed_at, used_at, reserved, requests,
        sequence, charged, signed, reduced, bought
      into t from tabs.tab where payer = c.payer and id = c.tab_id;
      if t.payment_id is null or cardinality(t.charged) < width then
        if t.payment_id is null and c.reserved is not null then
          insert into tabs.tab (payer, id, chain_id, token, contract, platform, reward_share, nonce, expires_at, has_code,
            payment_id, reserved, lent, credit, opened_at, used_at)
          values (c.payer, c.tab_id, c.chain_id, c.token, c.contract, c.platform, c.reward_share, c.nonce, c.expires_at,
            c.has_code, c.payment_id, c.reserved, c.lent, c.payer_credit, started_at, started_at)
          on conflict do nothing;
        end if;
        select payment_id, chain_id, token, contract, platform, reward_share, expires_at, closed_at, used_at, reserved, requests,
          sequence, charged, signed, reduced, bought
        into t from tabs.tab where payer = c.payer and id = c.tab_id for update;
      end if;
      v := null;
      v.payment_id := t.payment_id;
      v.known := coalesce(cardinality(t.charged), 0);
      known := v.known;

      earlier := null;
      -- A state that is newer than the newest stored state can't have been used before.
      if c.sequence <= t.sequence then
        select * into earlier from tabs.request where payer = c.payer and tab_id = c.tab_id and sequence = c.sequence;
      end if;
      has_other_line := false;
      -- If another request added lines after this request was verified, compare them with this request's lines.
      if c.known < known and width > c.known then
        has_other_line := exists (
          select from tabs.line l where l.payer = c.payer and l.tab_id = c.tab_id and l.position >= c.known and l.position < width
            and l.split <> c.splits[l.position - c.known + 1]
        );
      end if;
      v.verdict := tabs.judge_terms(c, t, earlier.request_hash, has_other_line);
      if v.verdict is not null then
        if earlier.payer is not null then
          v.line_total := earlier.line_total;
          v.line_reduced := earlier.line_reduced;
          v.accepted_at := extract(epoch from earlier.accepted_at) * 1000;
          v.requests := t.requests;
          if v.verdict = 'repeated' and earlier.charged = 0 then v.verdict := 'voided'; end if;
        end if;
        exit;
      end if;

      -- Each line costs gas when the tab settles, so a tab may have at most eight lines on which nothing was bought yet: enough for requests in
      -- flight.
      if width > known and width - tabs.count_bought_lines(c) > 8 then
        v.verdict := 'crowded';
        exit;
      end if;

      credited := 0;
      if c.position >= known then
        select amount into credited from tabs.credit
        where payer = c.payer and chain_id = c.chain_id and split = c.splits[c.position - c.known + 1] for update;
        credited := coalesce(credited, 0);
      end if;
      j := tabs.judge_amounts(c, t, credited);
      if j.verdict is not null then
        v.verdict := j.verdict;
        exit;
      end if;

      v := tabs.buy(c, t, j, credited, started_at, deadlines[n]);
      exit when v.verdict is not null;
    end loop;
    -- If no request was accepted, delete the tab that was inserted above, because it was never opened.
    if v.verdict <> 'accepted' and t.requests = 0 then
      delete from tabs.tab where payer = c.payer and id = c.tab_id and requests = 0;
    end if;
    return next v;
  end loop;
end
$$;
