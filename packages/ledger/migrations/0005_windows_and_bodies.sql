-- From when on a payment must be on its way, whatever its gas costs (packages/ledger/queue/triggers.ts), Unix seconds: with two fifths of its
-- window left, 15 minutes before it runs out at the latest. A window of five minutes leaves its middleware the 150 s in which that
-- voids what it never heard of, and the keeper two minutes.
alter table queue add column urgent_at bigint not null generated always as (
  valid_before - least(900, greatest(0, floor(
    0.4 * (valid_before - extract(epoch from accepted_at - timestamptz '1970-01-01 00:00:00+00'))
  )))::bigint
) stored;
drop index queue_expiry;
create index queue_urgent on queue (group_id, urgent_at) where stage in ('waiting', 'deferred', 'retrying', 'quarantined');

-- Which body a 402 of what is sold without code has, as the middleware's option `body`.
alter table upstream add column body text not null default 'tollkeeper' check (body in ('tollkeeper', 'x402-v1'));
