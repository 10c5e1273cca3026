-- Judges whether a request may be added to a tab, regardless of its price. Returns null if it may, otherwise:
--
-- repeated:   this same request was accepted before
-- replayed:   another request was bought with its state
-- unreserved: the tab isn't stored, because no credit was reserved for it
-- closed:     the tab accepts no more requests
-- mismatch:   the tab has other terms, or another line at the position of one of the request's lines
--
-- earlier_hash: hash of the request that was bought with the same state before; null: none
-- has_other_line: a line of the tab differs from the request's line at the same position
create or replace function tabs.judge_terms(c tabs.candidate, t tabs.tab_state, earlier_hash bytea, has_other_line boolean)
returns text language sql immutable as $$
  select case
    when earlier_hash = c.request_hash then 'repeated'
    when earlier_hash is not null then 'replayed'
    when t.payment_id is null then 'unreserved'
    when t.closed_at is not null then 'closed'
    when t.chain_id <> c.chain_id or t.token <> c.token or t.contract <> c.contract or t.platform <> c.platform
      or t.reward_share <> c.reward_share or t.expires_at <> c.expires_at then 'mismatch'
    when c.known > cardinality(t.charged) or has_other_line then 'mismatch'
  end
$$;
