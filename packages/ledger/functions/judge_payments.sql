-- Judges candidates by what reserving, storing and drawing gas showed. If several reasons refuse one, the first in this order counts:
--
-- over_limit:      the payer's limit doesn't cover it
-- replayed:        its challenge, its payment identifier, its tab or one of its authorizations belongs to another payment
-- gas_not_covered: its drawer has too little left for its gas
-- late:            its caller no longer waits for an answer
-- accepted
--
-- now_ms: Unix milliseconds by this database's clock.
create or replace function judge_payments(
  candidates candidate[], over_limit text[], stored text[], uncovered text[], now_ms float8
) returns table (id text, verdict text) language sql immutable as $$
  select c.id, case
    when c.id = any (over_limit) then 'over_limit'
    when c.id <> all (stored) then 'replayed'
    when c.id = any (uncovered) then 'gas_not_covered'
    when c.deadline < now_ms then 'late'
    else 'accepted'
  end
  from unnest(candidates) as c
$$;
