-- Delivery of the outbox to addresses that providers choose. The api delivers; the keeper, which holds gas keys, only
-- writes the outbox.

create table webhook (
  id text primary key check (id ~ '^wh_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  url text not null check (length(url) <= 2000),
  description text not null default '' check (length(description) <= 200),
  events text[] not null check (cardinality(events) > 0),
  -- Signing needs them in the clear. Two at most: the one before stays good while its receiver is switched over.
  secret text not null,
  previous_secret text,
  previous_secret_expires_at timestamptz,
  created_at timestamptz not null default now(),
  deleted_at timestamptz,   -- by its provider; what was delivered stays in the log
  disabled_at timestamptz,  -- the receiver answered 410 Gone
  check ((previous_secret is null) = (previous_secret_expires_at is null))
);
create index on outbox (id) where dispatched_at is null;
create index webhook_of_provider on webhook (provider_id) where deleted_at is null;

-- One message for one receiver.
create table webhook_delivery (
  id text primary key check (id ~ '^whd_[0-9a-f]{32}$'),
  outbox_id bigint not null references outbox,
  webhook_id text not null references webhook,
  message_id text not null, -- the same for the same (event, provider, payment, transaction): what receivers deduplicate by
  attempts smallint not null default 0,
  -- null: nothing more to do. A sender moves it on by its lease before it sends: if it dies, another one sends again.
  next_attempt_at timestamptz,
  delivered_at timestamptz,
  created_at timestamptz not null,
  unique (webhook_id, outbox_id)
);
create index webhook_delivery_due on webhook_delivery (next_attempt_at) where next_attempt_at is not null;
create index webhook_delivery_log on webhook_delivery (webhook_id, created_at desc, id desc);

-- What became of each sending. An attempt without an end was cut short, perhaps after the receiver had it.
create table webhook_attempt (
  delivery_id text not null references webhook_delivery on delete cascade,
  attempt smallint not null,
  started_at timestamptz not null,
  ended_at timestamptz,
  status smallint,     -- of the HTTP response, where there was one
  failure text,        -- a stable code where it didn't count as received
  detail text,
  response text,       -- how the body began
  primary key (delivery_id, attempt)
);
