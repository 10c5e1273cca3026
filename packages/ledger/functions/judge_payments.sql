-- Judges candidates after accept_payments has reserved their amounts, stored them, and drawn gas for them. If several reasons apply, the first in
-- this order counts:
--
-- over_limit:      its amount exceeds the payer's limit
-- replayed:        its challenge, its payment identifier, its tab or one of its authorizations belongs to another payment
-- stopped:         the operator has stopped sales. Refunds are stored anyway, and so are closed tabs, because their requests were sold before
-- gas_not_covered: the provider's grant or the common allowance has too little left for its gas
-- late:            its caller no longer waits for an answer
-- accepted
--
-- now_ms: Unix milliseconds by this database's clock.
create or replace function judge_payments(
  candidates candidate[], over_limit text[], stored text[], uncovered text[], is_stopped boolean, now_ms float8
) returns table (id text, verdict text) language sql immutable as $$
  select c.id, case
    when c.id = any (over_limit) then 'over_limit'
    when c.id <> all (stored) then 'replayed'
    when is_stopped and c.source in ('gateway', 'facilitator', 'submission') then 'stopped'
    when c.id = any (uncovered) then 'gas_not_covered'
    when c.deadline < now_ms then 'late'
    else 'accepted'
  end
  from unnest(candidates) as c
$$;
