-- What we accepted, signed and tried, and the record of what the chain did with it. Whether money moved is nowhere written
-- but in that record (packages/ledger/facts/halves.ts).
--
-- Addresses, hashes and nonces are lower-case 0x-hex text, as in Ponder's columns, so that a join converts nothing.
-- Amounts are USDC base units.

create domain usdc_amount as numeric(20, 0) check (value >= 0 and value < 18446744073709551616);
-- Decoding and encoding again gives the same text only for lower-case hex. A regular expression takes 25 times as long.
create domain address as text
  check (octet_length(value) = 42 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);
create domain bytes32 as text
  check (octet_length(value) = 66 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);

-- Whether a chain's USDC is worth nothing, as sdk/src/protocol/networks.ts says; packages/ledger/store/testnets.test.ts compares the two.
create function is_testnet(chain_id integer) returns boolean language sql immutable as $$
  select chain_id in (84532, 11155111, 80002, 31337)
$$;

-- Registry -----------------------------------------------------------------------------------------------------------

create table provider (
  id text primary key check (id ~ '^prov_[0-9a-f]{32}$'),
  name text not null check (length(name) between 1 and 200),
  contact text,
  requires_key boolean not null default false, -- /verify for its endpoints needs its API key
  void_violations integer not null default 0, -- payments that it voided and then settled all the same
  gas_grant usdc_amount not null default 0, -- what the operator pays a UTC day for gas that its payments carry by no fee
  version integer not null default 1, -- goes up with each change; who changes it names the one that they saw
  disabled_at timestamptz,
  suspended_at timestamptz, -- the operator's switch: it is as if disabled, and can't enable itself
  created_at timestamptz not null default now()
);

-- A provider's own server, which the gateway passes paid requests on to.
create table upstream (
  provider_id text primary key references provider,
  url text not null check (length(url) <= 2048),
  -- In the clear, because requests carry it. The one before is sent as well while the server switches over.
  secret text not null,
  secret_since timestamptz not null default now(),
  previous_secret text,
  previous_secret_expires_at timestamptz,
  check ((previous_secret is null) = (previous_secret_expires_at is null))
);

create table api_key (
  id text primary key check (id ~ '^key_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  secret_hash bytea not null check (length(secret_hash) = 32), -- SHA-256 of a 256-bit random secret
  label text not null default '',
  scope text not null default 'full' check (scope in ('full', 'read')),
  created_at timestamptz not null default now(),
  revoked_at timestamptz
);
create index on api_key (provider_id);

create table wallet (
  id text primary key check (id ~ '^wal_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  chain_id integer not null,
  address address not null,
  created_at timestamptz not null default now(),
  retired_at timestamptz, -- no endpoint uses it; what was signed for it is settled to it all the same
  unique (provider_id, chain_id, address),
  unique (id, chain_id)
);
create index on wallet (chain_id, address);

create table endpoint (
  id text primary key check (id ~ '^ep_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  wallet_id text not null,                   -- who is paid where a challenge names no network
  chain_id integer not null,
  testnet boolean not null generated always as (is_testnet(chain_id)) stored,
  method text not null check (method in ('GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*')),
  url text not null,                         -- of the protected resource, as registered
  path text not null,                        -- of that URL: a middleware without endpointId finds its endpoint by it
  shape text not null,                       -- the path as api/registry/routeTable.ts compares it: /a/:b and /A/:c are /a/:
  price usdc_amount not null check (price > 0),
  description text not null default '',
  mime_type text not null default 'application/json',
  version integer not null default 1,
  created_at timestamptz not null default now(),
  disabled_at timestamptz,
  foreign key (wallet_id, chain_id) references wallet (id, chain_id),
  unique (id, testnet)
);
-- Hashed: a path may be longer than what an index takes.
create unique index endpoint_route on endpoint (provider_id, method, md5(shape)) where disabled_at is null;

-- Further networks that an endpoint may be paid on. Never a test network beside a production one: whoever pays would
-- choose to pay nothing.
create table endpoint_wallet (
  endpoint_id text not null,
  chain_id integer not null,
  wallet_id text not null,
  testnet boolean not null generated always as (is_testnet(chain_id)) stored,
  primary key (endpoint_id, chain_id),
  foreign key (endpoint_id, testnet) references endpoint (id, testnet),
  foreign key (wallet_id, chain_id) references wallet (id, chain_id)
);

-- Every change of the above, written in the transaction that makes it.
create table registry_change (
  id bigint generated always as identity primary key,
  provider_id text not null references provider,
  changed_at timestamptz not null default clock_timestamp(), -- a transaction may have waited for the one before it
  key_id text references api_key, -- whose it is; null: the operator's
  subject text not null,          -- id of the provider, wallet, endpoint or key
  before jsonb,                   -- the fields that changed; null: it is new
  after jsonb not null
);
create index on registry_change (provider_id, id);

-- Payments -----------------------------------------------------------------------------------------------------------
--
-- Three tables say all of a payment's life (docs/architecture.md has the picture): `payment` what was accepted, which never
-- changes; `queue` where it stands while it waits or is under way; `outcome` how it ended. A payment has a row in one of
-- the last two, never in both. packages/ledger/queue/stages.ts is the only place that moves it.

-- A verification locks this row, so that parallel requests of one payer are counted one after the other.
create table payer (
  chain_id integer not null,
  token address not null,
  address address not null,
  accepted_total numeric(78, 0) not null default 0, -- of all its payments ever, both halves
  -- Transactions in which a payment of its failed that its simulation had let pass (packages/ledger/queue/quarantine.ts).
  mined_failures smallint not null default 0,
  first_seen_at timestamptz not null default now(),
  primary key (chain_id, token, address)
);

-- What was accepted, whichever door it came through. Written once.
create table payment (
  id text primary key check (octet_length(id) = 36 and 'pay_' || encode(decode(substr(id, 5), 'hex'), 'hex') = id),
  -- gateway: by /verify of the api. facilitator: by x402's /verify or /settle of the keeper. submission: by its /submit.
  -- refund: goes back to the payer of another payment (see refund), and is in no sum of a provider's.
  source text not null check (source in ('gateway', 'facilitator', 'refund', 'submission')),
  -- The challenge that it answers: one buys once.
  request_id text unique
    check (octet_length(request_id) = 36 and 'req_' || encode(decode(substr(request_id, 5), 'hex'), 'hex') = request_id),
  -- Both of one row of `endpoint`, which is never deleted: a foreign key would lock that row for each payment of a busy endpoint.
  provider_id text,
  endpoint_id text,
  chain_id integer not null,
  token address not null,
  payer address not null,
  payee address not null,               -- the provider's wallet
  fee_recipient address not null,       -- the platform's wallet
  -- Whom the one authorization pays that carries both parts; null: each part has an authorization of its own.
  splitter address check (splitter is null or fee_amount > 0),
  price usdc_amount not null,           -- what the challenge asked for: the provider's part and the fee
  provider_amount usdc_amount not null, -- the provider's part of what was signed
  fee_amount usdc_amount not null,      -- the platform's part
  valid_before bigint not null,         -- the earliest of its authorizations', Unix seconds
  tier text not null,
  effective_rate text not null,
  resource text not null,
  challenged_at timestamptz not null,
  accepted_at timestamptz not null,
  check ((source = 'gateway') = (request_id is not null)),
  check (case source
    when 'gateway' then provider_id is not null and endpoint_id is not null
    when 'facilitator' then endpoint_id is null and fee_amount = 0
    when 'refund' then provider_id is null and endpoint_id is null and fee_amount = 0
    else provider_id is null and endpoint_id is null
  end)
);
-- Without the id, by which a page is sorted within one moment: it would make each entry half as long again.
create index payment_provider on payment (provider_id, accepted_at);
create index payment_endpoint on payment (endpoint_id, accepted_at);
create index payment_payer on payment (payer, accepted_at);

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'a row of % is a fact: it is never changed', tg_table_name;
end
$$;
create trigger payment_is_fact before update on payment for each statement execute function refuse_change();

-- Rows that a statement makes from the payment's own (queue, signed_authorization, presentation, batch_item, outcome,
-- authorization_event) are deleted with it by this trigger instead of by foreign keys. Those cost a quarter of an acceptance,
-- and each of them locks the payment's row, which goes into the log.
create function delete_parts_of_payments() returns trigger language plpgsql as $$
begin
  delete from queue using gone where queue.payment_id = gone.id;
  delete from batch_item i using gone where i.payment_id = gone.id;
  delete from outcome using gone where outcome.payment_id = gone.id;
  delete from signed_authorization a using gone where a.payment_id = gone.id;
  delete from authorization_event e using gone where e.payment_id = gone.id;
  delete from presentation using gone where presentation.payment_id = gone.id;
  return null;
end
$$;
create trigger payment_deleted after delete on payment
  referencing old table as gone for each statement execute function delete_parts_of_payments();

-- Payments of one group may share a batch: one token, one fee recipient as signed. As a rule one a network.
create table queue_group (
  id smallint generated always as identity primary key,
  chain_id integer not null,
  token address not null,
  fee_recipient address not null,
  unique (chain_id, token, fee_recipient)
);

-- Where payments stand that aren't over. It is read by its indexes alone, so its length makes no difference to how fast a
-- batch is claimed.
create table queue (
  payment_id text primary key,
  group_id smallint not null, -- of queue_group
  -- reserved:    x402's /verify keeps it for its seller until next_at; then it is deleted
  -- waiting:     for a trigger, or a caller waits for it (due_at)
  -- deferred:    until next_at, without a failure of its own
  -- retrying:    failed before, is tried again at next_at
  -- quarantined: is settled apart from the others, from next_at on (packages/ledger/queue/quarantine.ts)
  -- claimed:     in a batch of which nothing is signed
  -- sent:        in a batch whose transaction is stored, and may be out; until that is final
  stage text not null
    check (stage in ('reserved', 'waiting', 'deferred', 'retrying', 'quarantined', 'claimed', 'sent')),
  next_at timestamptz,
  batch_id bigint,
  due_at timestamptz, -- since when a caller of /settle or /submit waits for it: it is tried once
  submission bytes32, -- what it was submitted with: settled together, or not at all
  attempts smallint not null default 0 check (attempts between 0 and 6), -- that failed by its own fault
  first_failed_at timestamptz,
  -- Of the payment, for the indexes.
  provider_id text,
  payer text not null,
  payee text not null,
  provider_amount usdc_amount not null,
  fee_amount usdc_amount not null,
  accepted_at timestamptz not null,
  valid_before bigint not null,
  has_code boolean not null default false, -- payers with code are settled in batches of their own
  -- Why it waits for cheaper gas, until it is claimed. gas_cost: its fee doesn't carry its share. It runs out soon, and the
  -- operator doesn't add what its fee lacks: gas_budget. It pays no fee, and nothing covers its share: gas_allowance.
  held_by text check (held_by in ('gas_cost', 'gas_budget', 'gas_allowance')),
  -- What is kept for its gas in gas_draw, and what of that its transactions have cost.
  gas_drawer text,
  gas_day date,
  gas_reserved usdc_amount not null default 0,
  gas_spent usdc_amount not null default 0,
  check ((gas_drawer is null) = (gas_day is null)),
  check (gas_reserved >= gas_spent and (gas_reserved = 0 or gas_drawer is not null)),
  check ((batch_id is not null) = (stage in ('claimed', 'sent'))),
  check (next_at is not null or stage not in ('reserved', 'deferred', 'retrying')),
  check (next_at is null or stage not in ('waiting')),
  check ((attempts > 0) = (first_failed_at is not null)),
  check (stage <> 'retrying' or attempts > 0),
  check (submission is null or due_at is not null)
)
-- Each row is written three times and then gone.
with (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 70);

create index queue_payee on queue (group_id, payee, stage, accepted_at);
create index queue_oldest on queue (group_id, has_code, accepted_at, payment_id) where stage = 'waiting' and due_at is null;
create index queue_expiry on queue (group_id, valid_before) where stage in ('waiting', 'deferred', 'retrying', 'quarantined');
-- The greatest first. Without micropayments, which no high-value threshold reaches.
create index queue_greatest on queue (group_id, (provider_amount + fee_amount))
  where stage = 'waiting' and due_at is null and provider_amount + fee_amount >= 1000000;
-- What a caller waits for: by arrival, and in turns over the callers.
create index queue_due on queue (group_id, has_code, (coalesce(provider_id, '')), due_at)
  where stage = 'waiting' and due_at is not null;
-- What one caller of the facilitator has open.
create index queue_caller on queue (coalesce(provider_id, '')) where stage = 'reserved' or due_at is not null;
create index queue_next on queue (stage, group_id, next_at) where stage in ('reserved', 'deferred', 'retrying', 'quarantined');
create index queue_payer on queue (payer);
create index queue_batch on queue (batch_id) where batch_id is not null;
create index queue_provider on queue (provider_id);
create index queue_submission on queue (submission) where submission is not null;
create index queue_held on queue (group_id, held_by) where held_by is not null;
create index queue_failed on queue (provider_id, accepted_at desc, payment_id desc) where attempts > 0;

-- How payments ended. A row is taken back by a reorg, by a requeue, or by a provider who takes what it has voided; the
-- payment is in the queue again, then.
create table outcome (
  payment_id text primary key,
  -- spent:   the chain leaves nothing of it to settle, but that isn't final
  -- settled: the provider's part has arrived, and that is final
  -- failed:  given up; a stranger who has the signatures may settle it all the same, until it has run out
  -- voided:  the provider did not serve, or nobody sent it in time
  kind text not null check (kind in ('spent', 'settled', 'failed', 'voided')),
  code text,                   -- why it failed, or why its fee is missing
  ended_at timestamptz not null,
  final_at timestamptz,        -- since when nothing of it can move any more; null: something can
  attempts smallint not null default 0,
  -- Of a final one, what of it arrived, as bits: 1 the provider's half, 2 the fee's. Then it is in the providers' sums.
  arrived smallint check (arrived between 0 and 3),
  settlement_seconds integer,  -- of one that settled: from its acceptance to its last half's block
  -- Of the payment, for the indexes.
  provider_id text,
  payer address not null,
  chain_id integer not null,
  accepted_at timestamptz not null,
  valid_before bigint not null,
  is_partial boolean not null default false, -- one half arrived, and the other never will
  check ((final_at is null) = (arrived is null)),
  check (kind <> 'spent' or final_at is null),
  check (kind <> 'settled' or final_at is not null),
  check (kind <> 'failed' or code is not null)
);
create index outcome_payer on outcome (payer, final_at);
create index outcome_payer_failed on outcome (payer) where code is not null;
create index outcome_open on outcome (chain_id, valid_before) where final_at is null;
create index outcome_spent on outcome (chain_id) where kind = 'spent';
create index outcome_exceptional on outcome (provider_id, accepted_at desc, payment_id desc)
  where kind in ('failed', 'voided') or is_partial;
create index outcome_provider_open on outcome (provider_id, accepted_at desc, payment_id desc) where final_at is null;

-- Payments whose signatures left through /settlements/pending; committed before they did. Such a one can't be voided.
create table publication (
  payment_id text primary key references payment on delete cascade,
  published_at timestamptz not null
);

-- Payments of which a half is used on chain, and the record doesn't say by whom: the keeper looks it up.
create table lookup (
  payment_id text primary key references payment on delete cascade,
  chain_id integer not null,
  requested_at timestamptz not null
);
create index on lookup (chain_id, requested_at);

-- Of payments that came through x402's facilitator: by whom, and how far it was answered.
create table facilitation (
  payment_id text primary key references payment on delete cascade,
  provider_id text references provider, -- whose API key came along; null: none did
  payer address not null,
  payment_identifier text check (payment_identifier ~ '^[A-Za-z0-9_-]{16,128}$'),
  fee usdc_amount not null default 0,   -- what the provider owes us for it; charged nowhere
  answered_at timestamptz,              -- when somebody began to be told that it is settled; it lapses
  told_at timestamptz check (told_at is null or answered_at is not null) -- when somebody was: told once
);
create unique index facilitation_identifier on facilitation (payer, payment_identifier) where payment_identifier is not null;

-- Of refunds: a provider's wallet pays them to the payer of another payment, and they are settled like any payment.
create table refund (
  payment_id text primary key references payment, -- the refund itself
  of_payment_id text not null references payment,
  number smallint not null check (number between 1 and 3), -- in its nonce: as often as that the keeper pays its gas
  provider_id text not null references provider,
  accepted_at timestamptz not null,
  released_at timestamptz, -- since when of_payment_id no longer counts it: it failed, and can't move any more
  unique (of_payment_id, number)
);
create index on refund (provider_id, accepted_at, payment_id);

-- Of a payment's refunds, what has moved or still can. Locked by who adds one, and never more than was paid.
create table refund_total (
  payment_id text primary key references payment,
  amount usdc_amount not null,
  paid usdc_amount not null,
  check (amount <= paid)
);

-- Debts that the operator gave up (tollkeeper payer forgive).
create table forgiven_debt (
  payment_id text primary key references payment,
  reason text not null check (length(reason) between 1 and 500),
  forgiven_at timestamptz not null default now()
);

-- What a payment was presented with: of use only until it is over, so it is deleted some time after (packages/ledger/outcomes/retention.ts).
-- Apart from the payment, because each update of a row writes all of it.
create table presentation (
  payment_id text primary key,
  request_hash bytea not null, -- SHA-256 of the request: same key and same hash are accepted again
  idempotency_key text,
  released_at timestamptz,     -- it ended without a verdict: one later presentation may take the payment over
  signature bytea not null check (length(signature) between 65 and 1024), -- of the authorization of half 0
  fee_signature bytea check (length(fee_signature) between 65 and 1024)   -- of half 1
);

-- What stands for an authorization on its token: 32 bytes, where the four columns in an index took five times as much.
create function authorization_key(chain_id integer, token text, authorizer text, nonce text) returns bytea
language sql immutable as $$
  select sha256(int4send(chain_id) || decode(substr(token, 3) || substr(authorizer, 3) || substr(nonce, 3), 'hex'))
$$;

-- One row an authorization. The unique key refuses a replay, whatever the code does.
create table signed_authorization (
  payment_id text not null,
  half smallint not null check (half in (0, 1)), -- 0: the provider's part, or all of it; 1: the platform's fee
  chain_id integer not null,
  token address not null,
  authorizer address not null,
  recipient address not null,
  value usdc_amount not null,
  valid_after bigint not null check (valid_after >= 0 and valid_after < 1099511627776),
  valid_before bigint not null check (valid_before > valid_after and valid_before < 1099511627776),
  nonce bytes32 not null,
  accepted_block bigint, -- for a nonce that isn't bound to the challenge: a use at or before this block is another's
  primary key (payment_id, half)
);
create unique index signed_authorization_key on signed_authorization (authorization_key(chain_id, token, authorizer, nonce));

-- Splitters that payments were accepted for, and their terms. What they hold is the chain's to say (packages/ledger/batches/sweeps.ts).
create table splitter (
  chain_id integer not null,
  token address not null,
  address address not null,
  provider address not null,
  platform address not null,
  provider_share bigint not null,
  platform_share bigint not null,
  look_at timestamptz not null default now(), -- when to see whether something waits in it for too long
  failed_sweeps smallint not null default 0,  -- in a row: it is left alone until look_at
  failed_block bigint, -- of the last of them: a receipt may be read again
  primary key (chain_id, token, address)
);
create index splitter_look on splitter (chain_id, token, platform, look_at);
create index on splitter (chain_id, provider);
create index splitter_failed on splitter (chain_id) where failed_sweeps > 0;

-- Settlement ---------------------------------------------------------------------------------------------------------

create table wallet_lease (
  chain_id integer not null,
  address address not null,
  holder text not null,
  fence bigint not null default 1, -- grows with every new holder; each write of a holder names its own
  expires_at timestamptz not null,
  paused_until timestamptz,        -- no gas money, or its transactions revert: tried again then
  paused_reason text,
  primary key (chain_id, address)
);

-- What settling cost by UTC day, USDC base units.
create table gas_cost (
  chain_id integer not null,
  day date not null,
  cost numeric(78, 0) not null,
  primary key (chain_id, day)
);

-- What was drawn on a UTC day for gas that no fee carries, USDC base units: reserved, or spent. The drawer is a provider's
-- grant (its id), what all share who have none ('common'), or what the operator adds on a chain to fees that are too small
-- for their gas ('budget:8453'). Only draw_gas adds to it, so it is never over its limit, whoever draws at the same time.
create table gas_draw (
  day date not null,
  drawer text not null,
  drawn numeric(78, 0) not null check (drawn >= 0),
  primary key (day, drawer)
);

-- Where a payment draws from whose fee is none of ours to judge: its provider's grant, or what all share who have none.
create function gas_source(provider_id text, common numeric) returns table (drawer text, most numeric)
language sql stable as $$
  select coalesce(max(p.id), 'common'), coalesce(max(p.gas_grant), common)
  from provider p where p.id = gas_source.provider_id and p.gas_grant > 0
$$;

-- Reserves an amount for a payment's gas instead of what is left of its reservation; false where the drawer has too little
-- left (null: it has no limit).
create function draw_gas(payment text, from_drawer text, most numeric, amount numeric, on_day date) returns boolean
language plpgsql as $$
declare
  held queue;
begin
  select * into held from queue where payment_id = payment for update;
  if not found then return false; end if;
  update gas_draw set drawn = drawn - (held.gas_reserved - held.gas_spent)
  where day = held.gas_day and drawer = held.gas_drawer;
  insert into gas_draw as d (day, drawer, drawn)
  select on_day, from_drawer, amount where most is null or amount <= most
  on conflict (day, drawer) do update set drawn = d.drawn + excluded.drawn
    where most is null or d.drawn + excluded.drawn <= most;
  if not found then
    update gas_draw set drawn = drawn + (held.gas_reserved - held.gas_spent)
    where day = held.gas_day and drawer = held.gas_drawer;
    return false;
  end if;
  update queue set gas_drawer = from_drawer, gas_day = on_day, gas_reserved = amount, gas_spent = 0
  where payment_id = payment;
  return true;
end
$$;

-- A payment that leaves the queue, however it does, gives back what it didn't cost. Deferred: whoever ends many payments
-- holds a drawer only while it commits.
create function return_gas() returns trigger language plpgsql as $$
begin
  update gas_draw set drawn = drawn - (old.gas_reserved - old.gas_spent)
  where day = old.gas_day and drawer = old.gas_drawer;
  return null;
end
$$;
create constraint trigger queue_returns_gas after delete on queue deferrable initially deferred for each row
  when (old.gas_reserved > old.gas_spent) execute function return_gas();

-- Networks on which nothing is sent, because gas is dearer than MAX_FEE_GWEI; over once it is past.
create table settlement_hold (
  chain_id integer primary key,
  held_until timestamptz not null
);

create table batch (
  id bigint generated always as identity primary key,
  batch_id bytes32 not null unique, -- random; what BatchSettled carries
  chain_id integer not null,
  token address not null,
  fee_recipient address not null,
  trigger text not null check (trigger in ('amount', 'count', 'time', 'high_value', 'expiry', 'direct')),
  lane text not null check (lane in ('facilitator', 'shared', 'high_value', 'direct', 'code', 'quarantined')),
  wallet address not null,
  fence bigint not null,
  -- claimed: nothing is signed yet. broadcast: a transaction is stored, and may be out. mined: waits for its depth.
  -- reorged: was mined, and a reorg dropped it.
  state text not null default 'claimed'
    check (state in ('claimed', 'broadcast', 'mined', 'reorged', 'closed')),
  outcome text check (outcome in ('settled', 'nothing_left', 'released', 'reverted', 'lost')), -- why it was closed
  created_at timestamptz not null default now(),
  closed_at timestamptz,
  check ((state = 'closed') = (closed_at is not null)),
  check ((state = 'closed') = (outcome is not null))
);
create unique index batch_in_flight on batch (chain_id, wallet) where state in ('claimed', 'broadcast'); -- one open nonce
create index batch_open on batch (chain_id, wallet) where state <> 'closed';

-- What was in a batch: most urgent first. Which batch a payment is in now is for its queue row to say.
create table batch_item (
  batch_id bigint not null references batch on delete cascade,
  position integer not null,
  payment_id text not null,
  provider_outcome smallint, -- the contract's digits, from our own transaction
  fee_outcome smallint,
  primary key (batch_id, position)
);
create index batch_item_payment on batch_item (payment_id);
alter table queue add foreign key (batch_id) references batch;

-- Every signed transaction, committed before its broadcast: first sends, replacements, cancellations.
create table transaction (
  hash bytes32 primary key,
  batch_id bigint not null references batch,
  chain_id integer not null,
  wallet address not null,
  nonce bigint not null,
  kind text not null check (kind in ('settle', 'replacement', 'cancellation')),
  raw bytea,                -- null: deleted, some time after it was over (packages/ledger/outcomes/retention.ts)
  gas bigint not null,
  max_fee_per_gas numeric(78, 0) not null,
  max_priority_fee_per_gas numeric(78, 0) not null,
  created_at timestamptz not null default now(),
  tried_at timestamptz,     -- when it was last sent to the nodes
  broadcast_at timestamptz, -- when a node last accepted it
  mined_block bigint,
  mined_block_hash bytes32,
  succeeded boolean,        -- its receipt's status
  resolved_at timestamptz,  -- this nonce is over: this or another transaction with it is final
  check (raw is not null or resolved_at is not null)
);
create unique index transaction_slot on transaction (chain_id, wallet, nonce, max_fee_per_gas);
create index transaction_batch on transaction (batch_id);
create index transaction_open on transaction (chain_id, wallet) where resolved_at is null;
create index transaction_with_bytes on transaction (batch_id) where raw is not null;

-- A failure that is the payment's own, as our simulation or transaction showed it.
create table settlement_failure (
  id bigint generated always as identity primary key,
  payment_id text not null references payment on delete cascade,
  attempt smallint not null,
  batch_id bigint references batch,
  code text not null,   -- insufficient_balance, invalid_signature, authorization_cancelled, authorization_expired, …
  detail text not null default '',
  failed_at timestamptz not null default now(),
  next_attempt_at timestamptz,
  unique (payment_id, attempt)
);

-- The record of what the chain did ------------------------------------------------------------------------------------
--
-- Every use and cancellation of an authorization of ours, and every batch, block by block, from the receipts of our own
-- transactions and from the index (packages/ledger/facts/record.ts). A reorg deletes the block, and with it what it showed. All that
-- says what is paid reads this, and nothing else.

-- How far the index was read into the record.
create table record_head (
  chain_id integer primary key,
  block_number bigint not null, -- everything up to here is in it
  read_number bigint not null,  -- read up to here: of what is between, the index lacked something
  block_time bigint not null,   -- of `read_number`, Unix seconds
  read_at timestamptz not null default clock_timestamp(),
  check (block_number <= read_number)
);

create table recorded_block (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  number bigint not null,
  hash bytes32 not null,
  time bigint not null,     -- Unix seconds
  confirmed_at timestamptz, -- time of the block that gave it its network's confirmation depth; its providers were told
  -- Whether the payments that it touches were looked at: 0 not yet, 1 while it was young, 2 since it is final.
  looked smallint not null default 0 check (looked between 0 and 2),
  is_final boolean not null default false,     -- too deep for a reorg: not held against the chain again
  unique (chain_id, number, hash)
);
create index recorded_block_unconfirmed on recorded_block (chain_id, number) where confirmed_at is null;
create index recorded_block_young on recorded_block (chain_id, number) where not is_final;
create index recorded_block_new on recorded_block (chain_id, number) where looked < 2;

create table authorization_event (
  payment_id text not null,
  half smallint not null,
  -- settled:     it was used, and the Transfer paired with it is the one that was accepted
  -- foreign_use: its nonce was used by another authorization, or before the payment was accepted
  -- cancelled:   its payer cancelled it
  state text not null check (state in ('settled', 'foreign_use', 'cancelled')),
  source text not null check (source in ('receipt', 'index', 'lookup')),
  tx_hash bytes32 not null,
  log_index integer not null,
  batch_log_index integer,  -- of the BatchSettled that the index attributes it to; of our own receipts null
  block_id bigint not null references recorded_block on delete cascade,
  splitter address, -- that it paid
  primary key (payment_id, half) -- of signed_authorization, with which it is deleted
);
create index authorization_event_block on authorization_event (block_id);
-- By its first four bytes, which tell transactions apart as well as all of it.
create index authorization_event_transaction on authorization_event (left(tx_hash, 10));
create index authorization_event_splitter on authorization_event (splitter, block_id) where splitter is not null;

-- What splitters of ours paid out, whoever swept them.
create table payout (
  splitter address not null,
  block_id bigint not null references recorded_block on delete cascade,
  log_index integer not null, -- of the platform's Transfer; the provider's follows it
  tx_hash bytes32 not null,
  is_platform_paid boolean not null, -- false: its wallet couldn't be paid, and its part waits in a splitter of its own
  primary key (splitter, block_id, log_index)
);
create index payout_block on payout (block_id);

-- What `settle` settled, whoever called it: each BatchSettled of USDC.
create table settled_batch (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  block_id bigint not null references recorded_block on delete cascade,
  block_time bigint not null,
  position bigint not null, -- block number * 2^20 + log index: batches of one second in their order
  log_index integer not null,
  tx_hash bytes32 not null,
  sequence integer,         -- its number among the chain's, as the index counts; null: only our receipt showed it yet
  keeper address not null,  -- who called `settle`
  trigger smallint not null,
  payment_count integer not null,
  provider_total numeric(78, 0) not null,
  fee_total numeric(78, 0) not null,
  gas_used bigint not null, -- of the whole transaction
  gas_cost numeric(78, 0) not null, -- wei, L1 fee included
  is_first boolean not null, -- of its transaction, whose gas counts once
  unique (block_id, log_index)
);
create index settled_batch_newest on settled_batch (chain_id, block_time desc, position desc);
create index settled_batch_keeper on settled_batch (chain_id, keeper, block_time desc, position desc);
create index settled_batch_sequence on settled_batch (chain_id, sequence);
create index settled_batch_transaction on settled_batch (tx_hash);

-- What one wallet received in one batch.
create table batch_recipient (
  batch_id bigint not null references settled_batch on delete cascade,
  recipient address not null,
  chain_id integer not null,
  block_time bigint not null, -- these two as in the batch
  position bigint not null,
  payment_count integer not null,
  total numeric(78, 0) not null,
  primary key (batch_id, recipient)
);
create index batch_recipient_newest on batch_recipient (chain_id, recipient, block_time desc, position desc);

-- What a keeper settled on a UTC day. Sums over time are made of these rows, so they cost no more when there are more batches.
create table keeper_day (
  chain_id integer not null,
  day date not null,
  keeper address not null,
  batches integer not null,
  payments integer not null,
  total numeric(78, 0) not null, -- of all that moved, fees included
  gas_used numeric(78, 0) not null,
  gas_cost numeric(78, 0) not null,
  primary key (chain_id, day, keeper)
);

create function count_batches() returns trigger language plpgsql as $$
begin
  insert into keeper_day as k (chain_id, day, keeper, batches, payments, total, gas_used, gas_cost)
  select chain_id, (to_timestamp(block_time) at time zone 'UTC')::date, keeper, d * count(*), d * sum(payment_count),
    d * sum(provider_total + fee_total), d * coalesce(sum(gas_used) filter (where is_first), 0),
    d * coalesce(sum(gas_cost) filter (where is_first), 0)
  from changed cross join (values (case tg_op when 'INSERT' then 1 else -1 end)) as direction (d)
  group by d, 1, 2, 3
  order by 1, 2, 3
  on conflict (chain_id, day, keeper) do update set
    batches = k.batches + excluded.batches, payments = k.payments + excluded.payments, total = k.total + excluded.total,
    gas_used = k.gas_used + excluded.gas_used, gas_cost = k.gas_cost + excluded.gas_cost;
  return null;
end
$$;
create trigger batches_recorded after insert on settled_batch
  referencing new table as changed for each statement execute function count_batches();
create trigger batches_taken_back after delete on settled_batch
  referencing old table as changed for each statement execute function count_batches();

-- USD price of a chain's gas token at a block, from its price feed. Joined on the hash, as above.
create table gas_token_price (
  chain_id integer not null,
  block_hash bytes32 not null,
  usd numeric(78, 0) not null, -- USDC base units for 10^18 wei
  primary key (chain_id, block_hash)
);

-- Messages to providers ----------------------------------------------------------------------------------------------

create table batch_notification (
  chain_id integer not null,
  tx_hash bytes32 not null,
  log_index integer not null,
  provider_id text not null references provider,
  block_hash bytes32 not null,
  occurrence integer not null default 1, -- grows when a reorg puts it into another block
  primary key (chain_id, tx_hash, log_index, provider_id)
);

-- Events, written in the transaction that causes them. The api delivers them; the keeper, which holds gas keys, only
-- writes here.
create table outbox (
  id bigint generated always as identity primary key,
  event text not null,
  provider_id text not null references provider,
  payment_id text references payment,
  tx_hash bytes32,
  occurrence integer not null default 1, -- settled, taken back, and settled by the same transaction: three messages
  data jsonb not null,
  created_at timestamptz not null default now(),
  dispatched_at timestamptz -- when its deliveries were created, one a receiver
);
create unique index outbox_once on outbox (event, payment_id, coalesce(tx_hash, ''), occurrence)
  where payment_id is not null;
create index on outbox (id) where dispatched_at is null;

create table webhook (
  id text primary key check (id ~ '^wh_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  url text not null check (length(url) <= 2000),
  description text not null default '' check (length(description) <= 200),
  events text[] not null check (cardinality(events) > 0),
  -- In the clear, because signing needs them. The previous one stays valid while the receiver switches over.
  secret text not null,
  previous_secret text,
  previous_secret_expires_at timestamptz,
  created_at timestamptz not null default now(),
  deleted_at timestamptz,   -- by its provider; the log keeps its deliveries
  disabled_at timestamptz,  -- the receiver answered 410 Gone
  -- How its last sending went. Receivers that don't answer soon share a part of the senders, and those that don't answer
  -- at all are left alone for a while, so that they hold up nobody else's messages.
  answers_soon boolean not null default false,
  silences smallint not null default 0, -- sendings in a row that got no answer
  paused_until timestamptz,
  check ((previous_secret is null) = (previous_secret_expires_at is null))
);
create index webhook_of_provider on webhook (provider_id) where deleted_at is null;

-- One message to one receiver.
create table webhook_delivery (
  id text primary key check (id ~ '^whd_[0-9a-f]{32}$'),
  outbox_id bigint not null references outbox,
  webhook_id text not null references webhook,
  message_id text not null, -- the same for the same event; receivers deduplicate by it
  attempts smallint not null default 0,
  -- Null: nothing left to do. A sender moves it on before it sends, so that another one sends again if this one dies.
  next_attempt_at timestamptz,
  delivered_at timestamptz,
  created_at timestamptz not null,
  unique (outbox_id, webhook_id)
);
create index webhook_delivery_due on webhook_delivery (webhook_id, next_attempt_at) where next_attempt_at is not null;
create index webhook_delivery_log on webhook_delivery (webhook_id, created_at desc, id desc);

-- One sending. Without an end it was cut short, perhaps after the receiver had got it.
create table webhook_attempt (
  delivery_id text not null references webhook_delivery on delete cascade,
  attempt smallint not null,
  started_at timestamptz not null,
  ended_at timestamptz,
  status smallint,     -- of the HTTP response, where there was one
  failure text,        -- a stable code, where it didn't count as received
  detail text,
  response text,       -- the body's beginning
  primary key (delivery_id, attempt)
);

-- Contacts whose owner has shown that it reads their mail; nobody else is sent any. Where the provider's contact is
-- another one by now, it is as if there were none.
create table confirmed_contact (
  provider_id text primary key references provider,
  address text not null,
  confirmed_at timestamptz not null,
  sent_at timestamptz,
  attempts smallint not null default 0, -- at the mail that is due
  -- Null: nothing to tell. A sender moves it on before it sends, so that another one sends again if this one dies.
  next_attempt_at timestamptz
);
create index on confirmed_contact (next_attempt_at) where next_attempt_at is not null;

-- What the next mail to a provider will tell.
create table mail_notice (
  outbox_id bigint primary key references outbox,
  provider_id text not null references confirmed_contact
);
create index on mail_notice (provider_id, outbox_id);

-- Providers' sums ----------------------------------------------------------------------------------------------------

-- Only concluded payments are in these sums, because their money can't move any more. All others are summed from the
-- recorded chain at each question, so a reorg shows at once. A payment that is opened again (after a reorg deeper than
-- the confirmation depth) leaves the sums.
create table revenue (
  provider_id text not null references provider,
  period text not null check (period in ('hour', 'day', 'month')), -- UTC
  starts_at timestamptz not null, -- payments belong to the period in which they were accepted
  endpoint_id text references endpoint, -- null: came through the facilitator
  chain_id integer not null,
  payee address not null,
  payments integer not null,      -- without voided ones
  voided_payments integer not null,
  settled_payments integer not null,
  failed_payments integer not null,
  gross numeric(78, 0) not null,  -- base units; gross = net + fee
  fee numeric(78, 0) not null,
  settled_net numeric(78, 0) not null,
  settled_fee numeric(78, 0) not null,
  failed_net numeric(78, 0) not null,
  unique nulls not distinct (provider_id, period, starts_at, endpoint_id, chain_id, payee)
);

-- For the top payers: a row for all time, and one for each month and day, UTC.
create table payer_revenue (
  provider_id text not null references provider,
  period text not null check (period in ('all', 'month', 'day')),
  starts_at timestamptz not null, -- with 'all', the epoch
  chain_id integer not null,
  payer address not null,
  payments integer not null,
  gross numeric(78, 0) not null,
  settled_net numeric(78, 0) not null,
  last_accepted_at timestamptz not null,
  primary key (provider_id, period, starts_at, chain_id, payer)
);
create index payer_revenue_top on payer_revenue (provider_id, gross desc, chain_id, payer) where period = 'all';

-- How long payments took from acceptance to their block, as a histogram of each UTC day of acceptance: whoever looks at it
-- reads no payment, and learns of none.
create table settlement_time (
  chain_id integer not null,
  day date not null,
  bucket smallint not null, -- up to e^(bucket / 20) seconds: 5 % wide, see settlement_bucket
  payments integer not null,
  primary key (chain_id, day, bucket)
);

create function settlement_bucket(seconds integer) returns smallint language sql immutable as $$
  select ceil(20 * ln(greatest(seconds, 1)))::smallint
$$;

-- What one payment adds to the sums, by its outcome. Returns a table (of one row) so that Postgres inlines it.
--
-- A voided payment counts for nothing, unless its provider took its half all the same.
create function revenue_share(net numeric, platform_fee numeric, was_voided boolean, arrived integer)
returns table (is_voided boolean, payments integer, voided_payments integer, settled_payments integer,
  failed_payments integer, gross numeric, fee numeric, settled_net numeric, settled_fee numeric, failed_net numeric)
language sql immutable as $$
  select was_voided and arrived & 1 = 0,
    case when was_voided and arrived & 1 = 0 then 0 else 1 end,
    case when was_voided and arrived & 1 = 0 then 1 else 0 end,
    arrived & 1,
    case when not was_voided and arrived & 1 = 0 then 1 else 0 end,
    case when was_voided and arrived & 1 = 0 then 0 else net + platform_fee end,
    case when was_voided and arrived & 1 = 0 then 0 else platform_fee end,
    case when arrived & 1 = 1 then net else 0 end,
    case when arrived & 2 = 2 then platform_fee else 0 end,
    case when not was_voided and arrived & 1 = 0 then net else 0 end
$$;

-- Adds final outcomes to the sums (direction 1), or takes them out again (-1). In the transaction that writes them, so
-- that a payment is in the sums if and only if its outcome is final.
create function add_to_revenue(ended outcome[], direction integer) returns void language sql as $$
  with share as (
    select p.provider_id, p.accepted_at, p.endpoint_id, p.chain_id, p.payee, p.payer, o.settlement_seconds, s.*
    from unnest(ended) as o join payment p on p.id = o.payment_id
    cross join lateral revenue_share(p.provider_amount, p.fee_amount, o.kind = 'voided', o.arrived) s
    where p.provider_id is not null
  ), by_payer as (
    insert into payer_revenue as r
      (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, last_accepted_at)
    select provider_id, period,
      case period when 'all' then 'epoch' else date_trunc(period, accepted_at, 'UTC') end as starts_at,
      chain_id, payer, direction * sum(payments), direction * sum(gross), direction * sum(settled_net), max(accepted_at)
    from share cross join (values ('all'), ('month'), ('day')) as periods (period)
    group by 1, 2, 3, 4, 5
    order by 1, 2, 3, 4, 5
    on conflict (provider_id, period, starts_at, chain_id, payer) do update set
      payments = r.payments + excluded.payments, gross = r.gross + excluded.gross,
      settled_net = r.settled_net + excluded.settled_net,
      last_accepted_at = greatest(r.last_accepted_at, excluded.last_accepted_at)
  ), by_time as (
    insert into settlement_time as t (chain_id, day, bucket, payments)
    select chain_id, (accepted_at at time zone 'UTC')::date, settlement_bucket(settlement_seconds), direction * count(*)
    from share where settlement_seconds is not null
    group by 1, 2, 3
    order by 1, 2, 3
    on conflict (chain_id, day, bucket) do update set payments = t.payments + excluded.payments
  )
  insert into revenue as r (provider_id, period, starts_at, endpoint_id, chain_id, payee, payments,
    voided_payments, settled_payments, failed_payments, gross, fee, settled_net, settled_fee, failed_net)
  select provider_id, period, date_trunc(period, accepted_at, 'UTC') as starts_at, endpoint_id, chain_id, payee,
    direction * sum(payments), direction * sum(voided_payments), direction * sum(settled_payments),
    direction * sum(failed_payments), direction * sum(gross), direction * sum(fee), direction * sum(settled_net),
    direction * sum(settled_fee), direction * sum(failed_net)
  from share cross join (values ('hour'), ('day'), ('month')) as periods (period)
  group by 1, 2, 3, 4, 5, 6
  order by 1, 2, 3, 4, 5, 6
  on conflict (provider_id, period, starts_at, endpoint_id, chain_id, payee) do update set
    payments = r.payments + excluded.payments, voided_payments = r.voided_payments + excluded.voided_payments,
    settled_payments = r.settled_payments + excluded.settled_payments,
    failed_payments = r.failed_payments + excluded.failed_payments,
    gross = r.gross + excluded.gross, fee = r.fee + excluded.fee,
    settled_net = r.settled_net + excluded.settled_net, settled_fee = r.settled_fee + excluded.settled_fee,
    failed_net = r.failed_net + excluded.failed_net
$$;

-- The sums follow the outcomes, whoever writes those.
create function follow_new_outcomes() returns trigger language plpgsql as $$
begin
  perform add_to_revenue(array(select n::outcome from new_outcomes n where n.final_at is not null), 1);
  return null;
end
$$;
create function follow_changed_outcomes() returns trigger language plpgsql as $$
begin
  perform add_to_revenue(array(
    select o::outcome from old_outcomes o join new_outcomes n using (payment_id)
    where o.final_at is not null and n.final_at is null), -1);
  perform add_to_revenue(array(
    select n::outcome from new_outcomes n join old_outcomes o using (payment_id)
    where n.final_at is not null and o.final_at is null), 1);
  return null;
end
$$;
create function follow_lost_outcomes() returns trigger language plpgsql as $$
begin
  perform add_to_revenue(array(select o::outcome from old_outcomes o where o.final_at is not null), -1);
  return null;
end
$$;
create trigger outcome_added after insert on outcome
  referencing new table as new_outcomes for each statement execute function follow_new_outcomes();
create trigger outcome_changed after update on outcome
  referencing old table as old_outcomes new table as new_outcomes for each statement execute function follow_changed_outcomes();
create trigger outcome_lost after delete on outcome
  referencing old table as old_outcomes for each statement execute function follow_lost_outcomes();

-- Counters -----------------------------------------------------------------------------------------------------------

-- Calls to the gateway by what became of them: 'challenged', 'paid', or the refusal's code. Each process counts in memory
-- and adds its counts every few seconds, so a request costs no write; a crash loses those seconds.
create table usage (
  provider_id text not null references provider,
  hour timestamptz not null,
  endpoint_id text not null references endpoint,
  outcome text not null check (length(outcome) <= 50),
  calls bigint not null,
  primary key (provider_id, hour, endpoint_id, outcome)
);

-- Requests counted for rate limits, gathered from the api processes every second. Unlogged: a crash forgives a minute.
create unlogged table request_count (
  key text not null,
  window_start bigint not null, -- Unix seconds
  count bigint not null,
  primary key (window_start, key)
);

-- How often something rare was done in the window that ends then: registrations, codes that were mailed.
create table quota (
  ends_at timestamptz not null,
  counted text not null, -- what, and of whom
  count integer not null,
  primary key (ends_at, counted)
);

-- Acceptance ---------------------------------------------------------------------------------------------------------

-- Stores payments that passed every check but two: whether they are new, and whether their payers' limits cover them.
-- A refused one doesn't affect the others. A function, so that a group is one round trip and one commit, and no slow
-- client holds its locks (packages/ledger/acceptance/acceptPayments.ts).
--
-- Concurrent calls can't deadlock: payers are locked first, in order, and payments are inserted in order of request_id.
--
-- Returns only the refused ones: 'over_limit', 'replayed' (its challenge, payment identifier or an authorization is already
-- stored), or 'gas_not_covered'.
--
-- Arrays of rows, since looking up the fields of JSON by name took longer than all checks of a payment together.
create type candidate as (
  id text, source text, request_id text, provider_id text, endpoint_id text, chain_id integer, token text, payer text,
  payer_limit numeric, has_code boolean, payee text, fee_recipient text,
  splitter text, provider_share bigint, platform_share bigint, price numeric,
  provider_amount numeric, fee_amount numeric, valid_before bigint, tier text, effective_rate text, resource text,
  idempotency_key text, request_hash text, challenged_at float8, accepted_at float8,
  stage text, next_at float8, due_at float8, submission text,
  facilitator_provider_id text, payment_identifier text, facilitator_fee numeric,
  gas_provider_id text, gas_amount numeric, gas_common numeric, -- what is drawn for its gas, null: its fee carries it
  deadline float8 -- by this database's clock: its caller hears no later answer, so it isn't accepted later
);
create type candidate_authorization as (
  payment_id text, half smallint, recipient text, value numeric, valid_after bigint, valid_before bigint, nonce text,
  signature text, accepted_block bigint
);
create function accept_payments(candidates candidate[], authorizations candidate_authorization[])
returns table (refused_id text, reason text) language plpgsql as $$
declare
  candidate candidate;
  reserving record;
  over_limit text[] := '{}';
  replayed text[] := '{}';
  misnamed text[];
  uncovered text[] := '{}';
  has_gas boolean := false;
  late text[];
  has_facilitation boolean := false;
  has_splitter boolean := false;
begin
  for reserving in
    select c.chain_id, c.token, c.payer, sum(c.provider_amount + c.fee_amount) as total, min(c.payer_limit) as least,
      array_agg(c) as candidates, bool_or(c.source = 'facilitator') as has_facilitation, bool_or(c.splitter is not null) as has_splitter,
      bool_or(c.gas_amount is not null) as has_gas
    from unnest(candidates) as c group by 1, 2, 3 order by 1, 2, 3
  loop
    -- All of a payer's at once, as a rule; one by one where its limit doesn't cover them all.
    insert into payer as p (chain_id, token, address, accepted_total)
    select reserving.chain_id, reserving.token, reserving.payer, reserving.total
    where reserving.least is null or reserving.total <= reserving.least
    on conflict (chain_id, token, address) do update
      set accepted_total = p.accepted_total + excluded.accepted_total
      where reserving.least is null or p.accepted_total + excluded.accepted_total <= reserving.least;
    if not found then
      foreach candidate in array reserving.candidates loop
        insert into payer as p (chain_id, token, address, accepted_total)
        select candidate.chain_id, candidate.token, candidate.payer, candidate.provider_amount + candidate.fee_amount
        where candidate.payer_limit is null or candidate.provider_amount + candidate.fee_amount <= candidate.payer_limit
        on conflict (chain_id, token, address) do update
          set accepted_total = p.accepted_total + excluded.accepted_total
          where candidate.payer_limit is null or p.accepted_total + excluded.accepted_total <= candidate.payer_limit;
        if not found then over_limit := over_limit || candidate.id; end if;
      end loop;
    end if;
    has_facilitation := has_facilitation or reserving.has_facilitation;
    has_splitter := has_splitter or reserving.has_splitter;
    has_gas := has_gas or reserving.has_gas;
  end loop;

  insert into queue_group (chain_id, token, fee_recipient)
  select distinct c.chain_id, c.token, c.fee_recipient from unnest(candidates) as c
  where not exists (
    select from queue_group g
    where g.chain_id = c.chain_id and g.token = c.token and g.fee_recipient = c.fee_recipient
  )
  order by 1, 2, 3
  on conflict do nothing;

  -- The payers' rows are locked: nobody else stores an authorization of theirs meanwhile. Looked up one by one, since a plan
  -- that joins the tables would read all that was ever signed.
  select array_agg(distinct known.id) into replayed
  from (
    select c.id, authorization_key(c.chain_id, c.token, c.payer, a.nonce) as key,
      row_number() over (partition by c.chain_id, c.token, c.payer, a.nonce order by c.id) as occurrence
    from unnest(authorizations) as a
    join unnest(candidates) as c on c.id = a.payment_id
    where c.id <> all (over_limit)
  ) known
  where occurrence > 1 or (
    select true from signed_authorization s
    where authorization_key(s.chain_id, s.token, s.authorizer, s.nonce) = known.key limit 1
  );
  replayed := coalesce(replayed, '{}');

  with inserted as (
    insert into payment (id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier, effective_rate, resource,
      challenged_at, accepted_at)
    select id, source, request_id, provider_id, endpoint_id, chain_id, token, payer, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier,
      effective_rate, resource, to_timestamp(challenged_at / 1000), to_timestamp(accepted_at / 1000)
    from unnest(candidates) as c
    where id <> all (over_limit) and id <> all (replayed)
    order by request_id
    on conflict (request_id) do nothing
    returning id, chain_id, token, payer
  ), queued as (
    insert into queue (payment_id, group_id, stage, next_at, due_at, submission, provider_id, payer, payee,
      provider_amount, fee_amount, accepted_at, valid_before, has_code)
    select i.id, g.id, c.stage, to_timestamp(c.next_at / 1000), to_timestamp(c.due_at / 1000), c.submission, c.provider_id,
      c.payer, c.payee, c.provider_amount, c.fee_amount, to_timestamp(c.accepted_at / 1000), c.valid_before, c.has_code
    from unnest(candidates) as c
    join inserted i on i.id = c.id
    join queue_group g on g.chain_id = c.chain_id and g.token = c.token and g.fee_recipient = c.fee_recipient
  ), presented as (
    insert into presentation (payment_id, request_hash, idempotency_key, signature, fee_signature)
    select i.id, decode(c.request_hash, 'hex'), c.idempotency_key,
      decode(substr(provider.signature, 3), 'hex'), decode(substr(fee.signature, 3), 'hex')
    from unnest(candidates) as c
    join inserted i on i.id = c.id
    join unnest(accept_payments.authorizations) as provider on provider.payment_id = c.id and provider.half = 0
    left join unnest(accept_payments.authorizations) as fee on fee.payment_id = c.id and fee.half = 1
  ), signed as (
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after,
      valid_before, nonce, accepted_block)
    select i.id, a.half, i.chain_id, i.token, i.payer, a.recipient, a.value, a.valid_after, a.valid_before, a.nonce,
      a.accepted_block
    from unnest(accept_payments.authorizations) as a
    join inserted i on i.id = a.payment_id
  )
  select replayed || array_agg(c.id) into replayed
  from unnest(candidates) as c
  where c.id <> all (over_limit) and c.id <> all (replayed) and c.id not in (select id from inserted);

  if has_facilitation then
    with facilitated as (
      insert into facilitation (payment_id, provider_id, payer, payment_identifier, fee)
      select c.id, c.facilitator_provider_id, c.payer, c.payment_identifier, c.facilitator_fee
      from unnest(candidates) as c
      where c.source = 'facilitator' and c.id <> all (over_limit) and c.id <> all (replayed)
      on conflict do nothing
      returning payment_id
    )
    select coalesce(array_agg(c.id), '{}') into misnamed
    from unnest(candidates) as c
    where c.source = 'facilitator' and c.id <> all (over_limit) and c.id <> all (replayed)
      and not exists (select from facilitated where payment_id = c.id);
    -- Its payment identifier is another payment's.
    if misnamed <> '{}' then delete from payment where id = any (misnamed); end if;
    replayed := replayed || misnamed;
  end if;

  if has_gas then
    -- Last, because others wait for the drawer.
    select coalesce(array_agg(drawn.id) filter (where not drawn.is_covered), '{}') into uncovered
    from (
      select c.id, draw_gas(c.id, source.drawer, source.most, c.gas_amount,
        (to_timestamp(c.accepted_at / 1000) at time zone 'UTC')::date) as is_covered
      from unnest(candidates) as c cross join lateral gas_source(c.gas_provider_id, c.gas_common) as source
      where c.gas_amount is not null and c.id <> all (over_limit) and c.id <> all (replayed)
      order by source.drawer
    ) drawn;
    if uncovered <> '{}' then delete from payment where id = any (uncovered); end if;
  end if;

  -- Whatever it waited for, in a pooler or for a lock, is behind it now. (A deletion of nothing costs its trigger all the same.)
  select coalesce(array_agg(c.id), '{}') into late
  from unnest(candidates) as c
  where c.deadline < extract(epoch from clock_timestamp()) * 1000
    and c.id <> all (over_limit) and c.id <> all (replayed) and c.id <> all (uncovered);
  if late <> '{}' then delete from payment where id = any (late); end if;

  if replayed || uncovered || late <> '{}' then
    update payer p set accepted_total = p.accepted_total - taken.total
    from (
      select c.chain_id, c.token, c.payer, sum(c.provider_amount + c.fee_amount) as total
      from unnest(candidates) as c
      where c.id = any (replayed || uncovered || late)
      group by 1, 2, 3
    ) taken
    where p.chain_id = taken.chain_id and p.token = taken.token and p.address = taken.payer;
  end if;

  if has_splitter then
    -- In order, so that concurrent calls can't deadlock; whoever comes later finds them.
    insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
    select distinct on (c.chain_id, c.token, c.splitter) c.chain_id, c.token, c.splitter, c.payee, c.fee_recipient,
      c.provider_share, c.platform_share
    from unnest(candidates) as c
    where c.splitter is not null and not exists (
      select from splitter s where s.chain_id = c.chain_id and s.token = c.token and s.address = c.splitter
    )
    order by c.chain_id, c.token, c.splitter
    on conflict do nothing;
  end if;

  return query
    select unnest(over_limit), 'over_limit'
    union all
    select unnest(replayed), 'replayed'
    union all
    select unnest(uncovered), 'gas_not_covered'
    union all
    select unnest(late), 'late';
end
$$;

