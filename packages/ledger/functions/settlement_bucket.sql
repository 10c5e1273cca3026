-- Returns the bucket of settlement_time for a duration. Bucket n ends at e^(n / 20) seconds, so each bucket ends 5% later than the bucket before it.
create or replace function settlement_bucket(seconds integer) returns smallint language sql immutable as $$
  select ceil(20 * ln(greatest(seconds, 1)))::smallint
$$;
