-- The gateway's tables: what it accepted, signed and tried, and the record of what the chain did with it. Only that record says
-- whether money moved (packages/ledger/facts/halves.ts).
--
-- Functions and triggers are in packages/ledger/functions, one file each. The migrator loads them after the migrations.
--
-- Addresses, hashes and nonces are lower-case 0x-hex text, as in Ponder's columns, so that a join converts nothing.
-- Amounts are USDC base units.

create domain usdc_amount as numeric(20, 0) check (value >= 0 and value < 18446744073709551616);
-- Decoding and encoding again gives the same text only for lower-case hex. A regular expression takes 25 times as long.
create domain address as text
  check (octet_length(value) = 42 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);
create domain bytes32 as text
  check (octet_length(value) = 66 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);

-- Networks -----------------------------------------------------------------------------------------------------------

-- The networks of sdk/src/protocol/networks.ts: the migrator writes them (packages/ledger/store/networks.ts). A network that a later
-- version no longer has keeps its row, because payments on it are still shown.
create table network (
  chain_id integer primary key,
  name text not null unique,
  is_testnet boolean not null, -- its USDC has no real value
  unique (chain_id, is_testnet)
);

-- Registry -----------------------------------------------------------------------------------------------------------

create table provider (
  id text primary key check (id ~ '^prov_[0-9a-f]{32}$'),
  name text not null check (length(name) between 1 and 200),
  contact text,
  requires_key boolean not null default false, -- /verify for its endpoints needs its API key
  own_middleware boolean not null default false, -- it verifies by a middleware of its own (packages/ledger/queue/triggers.ts)
  void_violations integer not null default 0, -- payments that it voided and then settled all the same
  gas_grant usdc_amount not null default 0, -- what the operator pays a UTC day for gas that its payments carry by no fee
  version integer not null default 1, -- goes up with each change; who changes it names the one that they saw
  disabled_at timestamptz,
  suspended_at timestamptz, -- the operator's switch: it is as if disabled, and can't enable itself
  created_at timestamptz not null default now(),
  -- What the provider says of itself for discovery (docs/discovery.md).
  listed boolean not null default true,
  service_name text check (service_name ~ '^[ -~]{1,32}$'),
  tags text[] not null default '{}' check (cardinality(tags) <= 5),
  icon_url text check (length(icon_url) <= 512),
  -- [{origin, address, signature}]: a wallet of the provider signed that it sells at the origin.
  ownership_proofs jsonb not null default '[]' check (octet_length(ownership_proofs::text) <= 4096)
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
  -- The format of the 402 body for what is sold without code, as the middleware's option `body`.
  body text not null default 'tollkeeper' check (body in ('tollkeeper', 'x402-v1')),
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
  testnet boolean not null,                  -- of its network
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
  -- What the provider says of the endpoint for discovery (docs/discovery.md).
  listed boolean not null default true,
  input_schema jsonb check (octet_length(input_schema::text) <= 8192),
  output_schema jsonb check (octet_length(output_schema::text) <= 8192),
  input_example jsonb check (octet_length(input_example::text) <= 8192),
  output_example jsonb check (octet_length(output_example::text) <= 8192),
  updated_at timestamptz not null default now(),
  foreign key (wallet_id, chain_id) references wallet (id, chain_id),
  foreign key (chain_id, testnet) references network (chain_id, is_testnet),
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
  testnet boolean not null, -- of its network and of its endpoint
  primary key (endpoint_id, chain_id),
  foreign key (chain_id, testnet) references network (chain_id, is_testnet),
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
  -- What was bought on tabs that ended too small to settle: it permanently reduces the payer's credit.
  left_unpaid usdc_amount not null default 0,
  -- What the platform bore of its defaults (covered_default). It permanently reduces the payer's earned credit, so the platform never
  -- bears more than the fees it kept of this payer.
  covered usdc_amount not null default 0,
  primary key (chain_id, token, address)
);

-- What was accepted, whichever door it came through. Written once.
create table payment (
  id text primary key check (octet_length(id) = 36 and 'pay_' || encode(decode(substr(id, 5), 'hex'), 'hex') = id),
  -- gateway: by /verify of the api. facilitator: by x402's /verify or /settle of the keeper. submission: by its /submit.
  -- refund: goes back to the payer of another payment (see refund), and is in no sum of a provider's. tab: a tab that was
  -- closed (see tab_payment).
  source text not null check (source in ('gateway', 'facilitator', 'refund', 'submission', 'tab')),
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
  splitter address,
  price usdc_amount not null,           -- what the challenge asked for: the provider's part and the fee
  provider_amount usdc_amount not null, -- the provider's part of what was signed
  fee_amount usdc_amount not null,      -- the platform's part
  valid_before bigint not null,         -- the earliest of its authorizations', Unix seconds
  tier text not null,
  effective_rate text not null,
  resource text not null,
  challenged_at timestamptz not null,
  accepted_at timestamptz not null,
  constraint payment_request_check check ((source = 'gateway') = (request_id is not null)),
  constraint payment_splitter_check check (splitter is null or fee_amount > 0 or source = 'tab'),
  constraint payment_provider_check check (case source
    when 'gateway' then provider_id is not null and endpoint_id is not null
    when 'facilitator' then endpoint_id is null and fee_amount = 0
    when 'refund' then provider_id is null and endpoint_id is null and fee_amount = 0
    -- Its lines name the providers. `payee` and `splitter` are the TabSettlement contract.
    when 'tab' then provider_id is null and endpoint_id is null and splitter = payee
    else provider_id is null and endpoint_id is null
  end)
);
-- Without the id, by which a page is sorted within one moment: it would make each entry half as long again.
create index payment_provider on payment (provider_id, accepted_at);
create index payment_endpoint on payment (endpoint_id, accepted_at);
create index payment_payer on payment (payer, accepted_at);

-- Rows that a statement creates from a payment's own values (queue, signed_authorization, presentation, batch_item, outcome,
-- authorization_event, tab_payment, tab_line, tab_sale) have no foreign key to it: those cost a quarter of an acceptance, and each
-- of them locks the payment's row, which is logged. The trigger in delete_parts_of_payments.sql deletes them with the payment.

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
  is_tab boolean not null default false, -- tabs are settled in batches of their own
  may_be_voided boolean not null default false, -- its seller's own middleware gets time to void it before triggers count it
  -- Unix seconds at which the payment must be on its way, whatever its gas costs (packages/ledger/queue/triggers.ts): when two fifths of
  -- its window are left, and at the latest 15 minutes before it expires. With a window of five minutes, the middleware has
  -- 150 s to void a payment whose answer it never received, and the keeper has two minutes.
  urgent_at bigint not null generated always as (
    valid_before - least(900, greatest(0, floor(
      0.4 * (valid_before - extract(epoch from accepted_at - timestamptz '1970-01-01 00:00:00+00'))
    )))::bigint
  ) stored,
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
create index queue_oldest on queue (group_id, is_tab, has_code, accepted_at, payment_id)
  where stage = 'waiting' and due_at is null;
create index queue_urgent on queue (group_id, urgent_at) where stage in ('waiting', 'deferred', 'retrying', 'quarantined');
-- The greatest first. Without micropayments, which no high-value threshold reaches.
create index queue_greatest on queue (group_id, (provider_amount + fee_amount))
  where stage = 'waiting' and due_at is null and provider_amount + fee_amount >= 1000000;
-- What a caller waits for: by arrival, and in turns over the callers. Callers without an API key take turns by payee.
create index queue_due on queue (group_id, has_code, (coalesce(provider_id, payee)), due_at)
  where stage = 'waiting' and due_at is not null;
-- What one caller of the facilitator has open.
create index queue_caller on queue (coalesce(provider_id, payee)) where stage = 'reserved' or due_at is not null;
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
  requested_at timestamptz not null,
  -- What isn't found is looked for again later, so that other requests pass it.
  look_at timestamptz not null default '-infinity',
  looks smallint not null default 0 -- without a result
);
create index on lookup (chain_id, look_at, requested_at);

-- Of payments that came through x402's facilitator: by whom, and how far it was answered.
create table facilitation (
  payment_id text primary key references payment on delete cascade,
  provider_id text references provider, -- whose API key came along; null: none did
  payer address not null,
  payment_identifier text check (payment_identifier ~ '^[A-Za-z0-9_-]{16,128}$'),
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

-- How much an operator lets a payer owe on tabs, beyond what the payer has earned: instead of TAB_CREDIT_USDC, and without drawing the
-- day's budget. 0: the payer buys on tabs only within earned credit.
create table granted_credit (
  chain_id integer not null,
  payer address not null,
  amount usdc_amount not null,
  reason text not null check (length(reason) between 1 and 500),
  granted_at timestamptz not null default now(),
  primary key (chain_id, payer)
);

-- What a payment was presented with: of use only until it is over, so it is deleted some time after (packages/ledger/outcomes/retention.ts).
-- Apart from the payment, because each update of a row writes all of it.
create table presentation (
  payment_id text primary key,
  request_hash bytea not null, -- SHA-256 of the request: same key and same hash are accepted again
  idempotency_key text,
  released_at timestamptz,     -- it ended without a verdict: one later presentation may take the payment over
  signature bytea not null check (length(signature) between 65 and 1024), -- of the authorization of half 0
  fee_signature bytea check (length(fee_signature) between 65 and 1024),  -- of half 1
  trace bytea check (octet_length(trace) = 24) -- of its request: 16 bytes of the trace's id, 8 of the span's; null: untraced
);

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
-- grant (its id), what all share who have none ('common'), each with ':test' behind it for test networks, or what the operator adds on a
-- chain to fees that are too small for their gas ('budget:8453'). draw_gas keeps reservations within the drawer's limit, whoever draws at the
-- same time. Beyond that, only bookGas adds what a mined transaction has cost, because it has to be paid.
create table gas_draw (
  day date not null,
  drawer text not null,
  drawn numeric(78, 0) not null check (drawn >= 0),
  primary key (day, drawer)
);

-- What a keeper last saw that settling the next batch would cost, USDC base units. It decides which thresholds hold.
create table settling_cost (
  chain_id integer primary key,
  cost numeric(78, 0) not null,
  seen_at timestamptz not null
);

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
  -- A batch of tabs is of a kind of its own, because another contract settles it.
  lane text not null check (lane in ('facilitator', 'shared', 'high_value', 'direct', 'code', 'quarantined', 'tab')),
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
  gas numeric(78, 0),      -- what its transaction added to queue.gas_spent, so that a reorg subtracts it again
  is_dropped boolean not null default false, -- it left the batch before anything was signed: no transaction carries it
  gas_drawer text,         -- whose `gas` it is
  gas_day date,
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
  -- What the transaction cost and showed when it was mined, so that a reorg undoes it.
  cost numeric(78, 0),      -- of its gas, USDC base units, as it is in gas_cost; null: it isn't mined
  cost_day date,
  refused text[],           -- payers whose payments failed in it, as payer.mined_failures counts them
  beyond numeric(78, 0),    -- drawn from the operator's budget on cost_day, for what neither fees nor drawers cover
  check (raw is not null or resolved_at is not null),
  check ((cost is null) = (cost_day is null) and (cost is null) = (refused is null))
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
  -- foreign_use: its nonce was used by another authorization, or before the payment was accepted; also a tab's state that paid a
  --              line less than is charged on it, or our platform less of its part
  -- cancelled:   its payer cancelled it
  state text not null check (state in ('settled', 'foreign_use', 'cancelled')),
  source text not null check (source in ('receipt', 'index', 'lookup')),
  tx_hash bytes32 not null,
  log_index integer not null,
  batch_log_index integer,  -- of the BatchSettled that the index attributes it to; of our own receipts null
  block_id bigint not null references recorded_block on delete cascade,
  splitter address, -- that it paid
  -- Of a tab that moved under other terms than those accepted: basis points of the platform's part that went elsewhere, to another
  -- platform or as a larger reward.
  lost_fee_share smallint not null default 0 check (lost_fee_share between 0 and 10000),
  -- Of a tab that moved under the accepted terms, but by a state with lines that tab_line doesn't have: [{split, amount}] of those that
  -- moved money. It becomes the payer's credit.
  unknown_lines jsonb,
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
-- Each provider that sold on a tab receives the tab's events. The payment comes first, because the deletion of a payment looks for it.
create unique index outbox_once on outbox (payment_id, event, provider_id, coalesce(tx_hash, ''), occurrence)
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
  tab_payments integer not null default 0, -- of `payments`, requests on tabs
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
  -- The fees that settled with that, less the rewards of those who settled it. A payer's credit grows with what ever settled of it, but
  -- never beyond these fees, so money that moves between wallets of one owner earns no credit.
  kept_fee numeric(78, 0) not null default 0,
  primary key (provider_id, period, starts_at, chain_id, payer)
);
create index payer_revenue_payer on payer_revenue (payer, chain_id) where period = 'all';
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

-- Tabs ----------------------------------------------------------------------------------------------------------------
--
-- Open tabs are in the tab store (packages/ledger/tabs), which may be another database. A tab that closes becomes one payment of source
-- `tab` here: one authorization, which pays the TabSettlement contract, and its lines (docs/tabs.md).

-- Whose a tab is: a tab is identified by its payer and its id together, because clients choose ids. A client that knows the id alone
-- finds the payer here. The row stays after the tab has ended, so the id never names another tab; it is deleted only with a reservation
-- on which nothing was bought.
create table tab_claim (
  tab_id text primary key check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  chain_id integer not null,
  token address not null,
  payer address not null,
  nonce bytes32 not null
);
-- No payment may have the nonce of a tab: the tab could not become a payment.
create unique index tab_claim_nonce on tab_claim (authorization_key(chain_id, token, payer, nonce));

-- Credit for open tabs, reserved in steps: it counts as owed until the tab is closed and its payment stands in its place.
create table tab_reservation (
  payer address not null,
  tab_id text not null,
  chain_id integer not null,
  token address not null,
  reserved usdc_amount not null,
  reserved_at timestamptz not null default now(), -- the latest step
  primary key (payer, tab_id)
);

-- What all payers together owe of what they were lent on a UTC day, beyond what each has earned, USDC base units: outstanding, or lost. It
-- is the sum of the loans of that day. Test networks have a budget of their own. The constraint refuses what would exceed the budget,
-- whatever the code does.
create table tab_budget (
  day date not null,
  money text not null check (money in ('real', 'test')),
  lent numeric(78, 0) not null default 0,
  budget numeric(78, 0) not null, -- the day's limit as of the latest loan, or what was lent if the operator lowered it below that
  primary key (day, money),
  check (lent between 0 and budget)
);

-- What a tab was lent, by the day whose budget it came from. A row shrinks when the tab closes, by what wasn't used, and is deleted once
-- the tab has settled finally. Rows of tabs that failed stay, because that money is lost.
create table tab_loan (
  payer address not null,
  tab_id text not null,
  day date not null,
  money text not null,
  amount usdc_amount not null check (amount > 0),
  primary key (payer, tab_id, day),
  foreign key (day, money) references tab_budget
);

-- How new the tab store must be: see tabs.mark. At most one row.
create table tab_store_mark (
  is_only boolean primary key default true check (is_only),
  number bigint not null check (number > 0)
);

-- Of payments that are tabs. The state that settles is fixed with it: whatever else the buyer signed is of no use any more.
create table tab_payment (
  payment_id text primary key,
  payer address not null,
  tab_id text not null check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  sequence bigint not null check (sequence > 0 and sequence < 1099511627776), -- of the state that settles
  reward_share integer not null check (reward_share between 0 and 10000),     -- basis points of the platform's part, as signed
  requests integer not null check (requests > 0),
  close_reason text not null,
  opened_at timestamptz not null,
  unique (payer, tab_id)
);

-- What each line of a tab settles: all that it pays in these shares to one wallet.
create table tab_line (
  payment_id text not null,
  position smallint not null,
  payee address not null,
  provider_share bigint not null check (provider_share >= 0 and provider_share < 281474976710656),
  platform_share bigint not null check (platform_share >= 0 and platform_share < 281474976710656),
  amount bigint not null check (amount >= 0 and amount < 281474976710656), -- as signed
  charged bigint not null check (charged between 0 and amount), -- what of that is owed: the rest, once it has moved, is the payer's credit
  moved bigint check (moved >= 0), -- if another state or other terms of the tab moved: the amount on this line. Null: as signed, or nothing yet
  primary key (payment_id, position)
);

-- Tabs that ended without a payment. The tab store deletes a tab some time after its end, but receipts name the id of its payment, so this
-- row stays and answers for it. The payer and what was signed are in tab_claim.
create table unpaid_tab (
  payment_id text primary key,
  tab_id text not null unique check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  contract address not null,
  platform address not null,
  reward_share integer not null check (reward_share between 0 and 10000),
  sequence bigint not null check (sequence > 0 and sequence < 1099511627776), -- of the newest state
  requests integer not null check (requests > 0),
  expires_at bigint not null, -- as signed, Unix seconds
  close_reason text not null,
  opened_at timestamptz not null,
  closed_at timestamptz not null,
  charged usdc_amount not null, -- on all lines; the payer never paid it
  fee_amount usdc_amount not null check (fee_amount <= charged), -- the platform's part of that
  -- tab_too_small: too little was charged to settle it. authorization_used: another payment has its nonce. Null: nothing was charged.
  code text check (code in ('tab_too_small', 'authorization_used')),
  ended_at timestamptz not null default now(),
  check ((code is null) = (charged = 0))
);

-- What the platform owes to providers for tabs that defaulted within their payers' earned credit. It is paid out of the fees that earned
-- this credit, so the platform never pays more than it kept. cover_defaults adds rows.
create table covered_default (
  payment_id text not null,
  provider_id text not null,
  payee address not null,
  chain_id integer not null,
  payer address not null,
  amount usdc_amount not null check (amount > 0), -- of the provider's part that never arrived
  covered_at timestamptz not null default now(),
  paid_tx bytes32, -- the transaction in which the operator paid it; null: not paid yet
  paid_at timestamptz,
  primary key (payment_id, provider_id, payee),
  check ((paid_tx is null) = (paid_at is null))
);
create index covered_default_unpaid on covered_default (covered_at) where paid_tx is null;
create index covered_default_provider on covered_default (provider_id, covered_at);

-- What was bought on a line of one endpoint within one hour: a provider's view of a tab.
create table tab_sale (
  payment_id text not null,
  number smallint not null,
  position smallint not null, -- of the line
  provider_id text not null,
  endpoint_id text not null,
  chain_id integer not null,
  payer address not null,     -- these two of the payment, for the indexes
  payee address not null,
  requests integer not null check (requests > 0),
  provider_amount usdc_amount not null,
  fee_amount usdc_amount not null,
  accepted_at timestamptz not null, -- when the last of these requests was
  -- Since when it is here, in milliseconds: receipts are listed in this order, because a tab comes long after its first request.
  taken_at timestamptz not null default date_trunc('milliseconds', now()),
  -- Of a tab whose end is final: what of both parts moved, and the basis points of the fee in it that went elsewhere than to our
  -- platform. Then it is in the providers' sums.
  arrived usdc_amount,
  lost_fee_share smallint check (lost_fee_share between 0 and 10000),
  is_exceptional boolean not null default false, -- the tab's end is final, and it isn't that all of it settled
  primary key (payment_id, number)
);
create index tab_sale_provider on tab_sale (provider_id, accepted_at);
create index tab_sale_taken on tab_sale (provider_id, taken_at, payment_id);
create index tab_sale_endpoint on tab_sale (endpoint_id, accepted_at);
create index tab_sale_open on tab_sale (provider_id, accepted_at) where arrived is null;
create index tab_sale_exceptional on tab_sale (provider_id, accepted_at) where is_exceptional;

-- All that providers sell, one row a sale: a payment, or the requests on a tab that were bought of one endpoint within an hour. Views,
-- sums, events and limits read sales from here, so none of them asks which of the two a sale is. packages/ledger/sales has the searches.
--
-- Payments without a provider (refunds, tabs themselves, callers without an API key) are rows with provider_id null, and no sales. A
-- condition here, or a join, would keep Postgres from reading the newest sales by the indexes of both tables.
create view sale as
  select id as payment_id, 0::smallint as number, source, provider_id, endpoint_id, chain_id, payer, payee, 1 as requests,
    provider_amount, fee_amount, accepted_at, splitter, null::smallint as position,
    case when splitter is null then 1 else 0 end as fee_half, null::usdc_amount as arrived, null::smallint as lost_fee_share
  from payment
  union all
  select payment_id, number, 'tab', provider_id, endpoint_id, chain_id, payer, payee, requests,
    provider_amount, fee_amount, accepted_at, null::address, position, 0, arrived, lost_fee_share
  from tab_sale;

-- Discovery -----------------------------------------------------------------------------------------------------------

-- What sellers who use x402's facilitator alone declare (extension `bazaar`), once a payment for it has settled: under the wallet
-- that was paid, whoever else declares the same resource.
create table declared_resource (
  id bigint generated always as identity primary key,
  resource text not null check (length(resource) between 1 and 2048),
  chain_id integer not null,
  pay_to address not null,
  provider_id text references provider, -- whose API key settled it; null: none came along
  x402_version smallint not null check (x402_version in (1, 2)),
  amount usdc_amount not null,
  max_timeout_seconds integer not null,
  description text not null check (length(description) <= 500),
  mime_type text not null check (length(mime_type) <= 200),
  service_name text,
  tags text[] not null,
  icon_url text,
  bazaar jsonb not null check (octet_length(bazaar::text) <= 32768), -- Postgres writes it with spaces
  declared_at timestamptz not null default now(), -- the first time
  updated_at timestamptz not null default now(),  -- when it last changed
  settled_at timestamptz not null default now(),  -- when a payment for it last settled, to the minute
  -- What the resource itself was found to ask for: as in endpoint_proof. Its own word then replaces what the buyer repeated of it.
  proven_at timestamptz,
  checked_at timestamptz,
  next_check_at timestamptz not null default now(),
  failures smallint not null default 0,
  finding text
);
create index on declared_resource (next_check_at);
create unique index declared_resource_key on declared_resource (md5(resource), chain_id, pay_to);
create index on declared_resource (pay_to);
create index on declared_resource (settled_at);

-- Whether an endpoint's URL asks for payments to its wallet: what the api was answered there. Anyone can register anyone's URL, and on a
-- shared host a neighbor's has the same origin.
create table endpoint_proof (
  endpoint_id text primary key references endpoint,
  url text not null,      -- that is asked, and the wallet that it is asked for: what was found holds for no other
  pay_to address not null,
  proven_at timestamptz,  -- when it last did; null: it never has, or asks for payments to others by now
  checked_at timestamptz, -- null: never
  next_check_at timestamptz not null default now(),
  failures smallint not null default 0, -- in a row
  finding text            -- why it isn't proven
);
create index on endpoint_proof (next_check_at);

-- Arguments of functions ----------------------------------------------------------------------------------------------
--
-- Functions take arrays of rows, because reading the fields of JSON by name took longer than all checks of a payment together.

-- For accept_payments.
create type candidate as (
  id text, source text, request_id text, provider_id text, endpoint_id text, chain_id integer, token text, payer text,
  payer_limit numeric, has_code boolean, payee text, fee_recipient text,
  splitter text, provider_share bigint, platform_share bigint, price numeric,
  provider_amount numeric, fee_amount numeric, valid_before bigint, tier text, effective_rate text, resource text,
  idempotency_key text, request_hash text, challenged_at float8, accepted_at float8,
  stage text, next_at float8, due_at float8, submission text,
  waits_since float8, -- null: since it was accepted
  facilitator_provider_id text, payment_identifier text,
  tab_id text, -- the tab that it settles: its amount is reserved and its nonce claimed
  gas_provider_id text, gas_amount numeric, gas_common numeric, -- what is drawn for its gas, null: its fee carries it
  deadline float8 -- by this database's clock: its caller hears no later answer, so it isn't accepted later
);
create type candidate_authorization as (
  payment_id text, half smallint, recipient text, value numeric, valid_after bigint, valid_before bigint, nonce text,
  signature text, accepted_block bigint
);

-- For take_tabs.
create type sold_on_tab as (
  payment_id text, number smallint, position smallint, provider_id text, endpoint_id text, chain_id integer, payer text, payee text,
  requests integer, provider_amount numeric, fee_amount numeric, accepted_at timestamptz
);
