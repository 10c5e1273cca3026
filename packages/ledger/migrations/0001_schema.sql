-- The gateway's tables: accepted payments, signed transactions and attempts, and the record of the results on chain. Only that record
-- decides whether money moved (packages/ledger/facts/halves.ts).
--
-- Functions and triggers are in packages/ledger/functions, one file each. The migrator loads them after the migrations.
--
-- Addresses, hashes and nonces are lower-case 0x-hex text, as in Ponder's columns, so that joins need no conversion. Amounts are USDC base
-- units.

create domain usdc_amount as numeric(20, 0) check (value >= 0 and value < 18446744073709551616);
-- Checks for lower-case hex: only then do decoding and re-encoding return the same text. A regular expression would take 25 times as long.
create domain address as text
  check (octet_length(value) = 42 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);
create domain bytes32 as text
  check (octet_length(value) = 66 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);

-- Networks -----------------------------------------------------------------------------------------------------------

-- The networks of sdk/src/protocol/networks.ts and of NETWORKS_FILE, which the migrator writes (packages/ledger/store/networks.ts). A
-- network that a later version removes keeps its row, because payments on it are still shown.
create table network (
  chain_id integer primary key,
  name text not null unique,
  is_testnet boolean not null, -- its USDC has no value
  unique (chain_id, is_testnet)
);

-- Registry -----------------------------------------------------------------------------------------------------------

create table provider (
  id text primary key check (id ~ '^prov_[0-9a-f]{32}$'),
  name text not null check (length(name) between 1 and 200),
  contact text,
  requires_key boolean not null default false, -- /verify for the provider's endpoints requires the provider's API key
  own_middleware boolean not null default false, -- the provider wrote its middleware instead of using the SDK's (packages/ledger/queue/triggers.ts)
  void_violations integer not null default 0, -- number of payments that it voided and then settled anyway
  gas_grant usdc_amount not null default 0, -- maximum that the operator pays per UTC day for gas that fees of this provider's payments don't cover
  version integer not null default 1, -- incremented by each change; a change must name the version that its author saw
  disabled_at timestamptz,
  suspended_at timestamptz, -- set by the operator: the provider is disabled and can't enable itself
  created_at timestamptz not null default now(),
  -- The provider's description of itself for discovery (docs/discovery.md).
  listed boolean not null default true,
  service_name text check (service_name ~ '^[ -~]{1,32}$'),
  tags text[] not null default '{}' check (cardinality(tags) <= 5),
  icon_url text check (length(icon_url) <= 512),
  -- [{origin, address, signature}]: a wallet of the provider signed that the provider sells at the origin.
  ownership_proofs jsonb not null default '[]' check (octet_length(ownership_proofs::text) <= 4096)
);

-- A provider's own server, to which the gateway forwards paid requests.
create table upstream (
  provider_id text primary key references provider,
  url text not null check (length(url) <= 2048),
  -- Stored as plain text, because requests carry it. The previous secret is sent as well while the server switches to the new one.
  secret text not null,
  secret_since timestamptz not null default now(),
  previous_secret text,
  previous_secret_expires_at timestamptz,
  -- Same as the middleware's option `acceptX402V1`, for endpoints that are sold through the proxy.
  accept_x402_v1 boolean not null default false,
  -- Whether the gateway forwards the `Authorization` of callers, so that they can log in to this server. The gateway's own schemes are never
  -- forwarded. If the server refuses the login, the buyer isn't charged.
  forward_authorization boolean not null default false,
  check ((previous_secret is null) = (previous_secret_expires_at is null))
);

-- The URL that the gateway asks before it accepts a provider's payments (docs/before-accept.md).
create table accept_hook (
  provider_id text primary key references provider,
  url text not null check (length(url) <= 2048),
  -- Names of request headers to pass on, for endpoints that are sold through the proxy.
  headers text[] not null default '{}' check (cardinality(headers) <= 16),
  -- Whether payments are refused or accepted if the hook returns no decision.
  on_failure text not null default 'refuse' check (on_failure in ('refuse', 'accept')),
  -- Stored as plain text, because signing needs it. The previous secret signs as well while the receiver switches to the new one.
  secret text not null,
  secret_since timestamptz not null default now(),
  previous_secret text,
  previous_secret_expires_at timestamptz,
  changed_at timestamptz not null default now(), -- decisions that were cached before this time are ignored
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
  retired_at timestamptz, -- no endpoint uses it any more, but payments that were signed for it still settle to it
  unique (provider_id, chain_id, address),
  unique (id, chain_id)
);
create index on wallet (chain_id, address);

create table endpoint (
  id text primary key check (id ~ '^ep_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  wallet_id text not null,                   -- the wallet that is paid if a challenge names no network
  chain_id integer not null,
  testnet boolean not null,                  -- whether its network is a test network
  method text not null check (method in ('GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*')),
  url text not null,                         -- URL of the protected resource, as registered
  host text not null,                        -- host of `url`, with its port unless it is the scheme's default; '' for an MCP tool
  path text not null,                        -- path of `url`: a middleware without endpointId uses it to find the endpoint
  shape text not null,                       -- the path in the form that api/registry/routeTable.ts compares: /a/:b and /A/:c both become /a/:
  price usdc_amount not null check (price > 0),
  description text not null default '',
  mime_type text not null default 'application/json',
  version integer not null default 1,
  created_at timestamptz not null default now(),
  disabled_at timestamptz,
  -- The provider's description of the endpoint for discovery (docs/discovery.md).
  listed boolean not null default true,
  input_schema jsonb check (octet_length(input_schema::text) <= 8192),
  output_schema jsonb check (octet_length(output_schema::text) <= 8192),
  input_example jsonb check (octet_length(input_example::text) <= 8192),
  output_example jsonb check (octet_length(output_example::text) <= 8192),
  server_url text check (server_url ~ '^https?://' and octet_length(server_url) <= 2048), -- URL of the MCP server that offers the tool
  updated_at timestamptz not null default now(),
  check (server_url is null or url like 'mcp:%'),
  foreign key (wallet_id, chain_id) references wallet (id, chain_id),
  foreign key (chain_id, testnet) references network (chain_id, is_testnet),
  unique (id, testnet)
);
-- Host and shape are hashed, because they may be longer than an index entry can be.
create unique index endpoint_route on endpoint (provider_id, md5(host), method, md5(shape)) where disabled_at is null;
-- To find all endpoints of a URL's host, of any provider.
create index endpoint_host on endpoint (md5(host));

-- Additional networks on which an endpoint may be paid. Test networks and production networks are never mixed: otherwise buyers would choose to pay
-- with a test network's worthless money.
create table endpoint_wallet (
  endpoint_id text not null,
  chain_id integer not null,
  wallet_id text not null,
  testnet boolean not null, -- whether its network is a test network; equal to `testnet` of the endpoint
  primary key (endpoint_id, chain_id),
  foreign key (chain_id, testnet) references network (chain_id, is_testnet),
  foreign key (endpoint_id, testnet) references endpoint (id, testnet),
  foreign key (wallet_id, chain_id) references wallet (id, chain_id)
);

-- Every change of the registry's tables above. A row is written in the same transaction as its change.
create table registry_change (
  id bigint generated always as identity primary key,
  provider_id text not null references provider,
  changed_at timestamptz not null default clock_timestamp(), -- not now(), because the transaction may have waited since its start
  key_id text references api_key, -- the key that made the change; null: the operator
  subject text not null,          -- id of the provider, wallet, endpoint or key
  before jsonb,                   -- previous values of the changed fields; null: the subject is new
  after jsonb not null
);
create index on registry_change (provider_id, id);

-- The operator's stop switch, with the author of each change. The last row decides: if it says stopped, accept_payments stores no new sale.
create table sales_change (
  id bigint generated always as identity primary key,
  is_stopped boolean not null,
  reason text not null default '' check (length(reason) <= 200), -- shown to buyers
  changed_by text not null check (length(changed_by) <= 300),
  changed_at timestamptz not null default clock_timestamp()
);

-- Payments -----------------------------------------------------------------------------------------------------------
--
-- Three tables describe a payment's life (see the diagram in docs/architecture.md). `payment` has what was accepted, and never changes.
-- `queue` has the payment's stage while it is waiting or being settled. `payment_result` has its result. A payment has a row in one of the
-- last two, never in both. Only packages/ledger/queue/stages.ts moves payments between them.

-- A verification locks the payer's row, so that concurrent requests of one payer are counted sequentially.
create table payer (
  chain_id integer not null,
  token address not null,
  address address not null,
  accepted_total numeric(78, 0) not null default 0, -- total ever accepted from the payer or reserved for its tabs
  -- Number of transactions in which one of its payments failed after its simulation passed (packages/ledger/queue/isolation.ts).
  mined_failures smallint not null default 0,
  first_seen_at timestamptz not null default now(),
  -- Amount bought on tabs that ended too small to settle. It permanently reduces the payer's credit.
  left_unpaid usdc_amount not null default 0,
  -- Amount of its defaults that the platform bore (covered_default). It permanently reduces the payer's earned credit, so the platform never bears
  -- more than the fees that it kept from this payer's payments plus the granted credit.
  covered usdc_amount not null default 0,
  primary key (chain_id, token, address)
);

-- Accepted payments of all sources. Rows never change.
create table payment (
  id text primary key check (octet_length(id) = 36 and 'pay_' || encode(decode(substr(id, 5), 'hex'), 'hex') = id),
  -- gateway:     accepted by the api's /verify
  -- facilitator: accepted by the keeper's x402 routes /verify or /settle
  -- submission:  accepted by the keeper's /submit
  -- refund:      goes back to the payer of another payment (table refund), and is in no provider's sums
  -- tab:         a tab that was closed (table tab_payment)
  source text not null check (source in ('gateway', 'facilitator', 'refund', 'submission', 'tab')),
  -- The challenge that it answers: each challenge can be paid once.
  request_id text unique
    check (octet_length(request_id) = 36 and 'req_' || encode(decode(substr(request_id, 5), 'hex'), 'hex') = request_id),
  -- Both columns are from the same row of `endpoint`. There is no foreign key, because it would lock that row for each payment of a busy endpoint,
  -- and endpoints are never deleted.
  provider_id text,
  endpoint_id text,
  chain_id integer not null,
  token address not null,
  payer address not null,
  payee address not null,               -- the provider's wallet
  fee_recipient address not null,       -- the platform's wallet
  -- The recipient of a single authorization for both parts; null: each part has a separate authorization.
  splitter address,
  price usdc_amount not null,           -- the challenge's amount: the provider's part and the fee
  provider_amount usdc_amount not null, -- the provider's part of the signed amount
  fee_amount usdc_amount not null,      -- the platform's part of the signed amount
  valid_before bigint not null,         -- the earliest expiry of its authorizations, Unix seconds
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
    -- The tab's lines name its providers. `payee` and `splitter` are the TabSettlement contract.
    when 'tab' then provider_id is null and endpoint_id is null and splitter = payee
    else provider_id is null and endpoint_id is null
  end)
);
-- Pages sort payments of the same time by id. The index doesn't contain the id, because each entry would then be 50 % longer.
create index payment_provider on payment (provider_id, accepted_at);
create index payment_endpoint on payment (endpoint_id, accepted_at);
create index payment_payer on payment (payer, accepted_at);
-- Refunds to a payer. There are few, so the index is small.
create index payment_refund on payment (payee) where source = 'refund';

-- The tables queue, signed_authorization, presentation, batch_item, payment_result, authorization_event, tab_payment, tab_line and tab_sale have no
-- foreign key to the payment, because their rows are always created from the values of an existing payment. Foreign keys took a quarter of the time
-- of an acceptance: each one locks the payment's row, and every such lock is written to the WAL. The trigger in delete_parts_of_payments.sql deletes
-- the rows with the payment.

-- Payments of one group may share a batch: they have the same token, and the same signed fee recipient. Usually there is one group per
-- network.
create table queue_group (
  id smallint generated always as identity primary key,
  chain_id integer not null,
  token address not null,
  fee_recipient address not null,
  unique (chain_id, token, fee_recipient)
);

-- The stages of payments without a result. Every query reads the table through an index, so its length doesn't affect how fast a batch is claimed.
create table queue (
  payment_id text primary key,
  group_id smallint not null, -- key of queue_group
  -- reserved: x402's /verify reserves it for its seller until next_at; then it is deleted
  -- waiting:  waits for a trigger, or is due because a caller waits for it (due_at)
  -- deferred: postponed until next_at, without a failed attempt
  -- retrying: an attempt failed; it is retried at next_at
  -- isolated: settles separately from other payments, at next_at or later (packages/ledger/queue/isolation.ts)
  -- claimed:  in a batch whose transaction isn't signed yet
  -- sent:     in a batch whose transaction is stored and may have been sent, until the transaction is final
  stage text not null
    check (stage in ('reserved', 'waiting', 'deferred', 'retrying', 'isolated', 'claimed', 'sent')),
  next_at timestamptz,
  batch_id bigint,
  due_at timestamptz, -- since when a caller of /settle or /submit waits for it; such a payment is attempted only once. null: no caller waits
  submission bytes32, -- the submission that it belongs to, which settles completely or not at all
  attempts smallint not null default 0 check (attempts between 0 and 6), -- number of failed attempts that were the payment's own fault
  first_failed_at timestamptz,
  -- Copied from the payment, for the indexes.
  provider_id text,
  payer text not null,
  payee text not null,
  provider_amount usdc_amount not null,
  fee_amount usdc_amount not null,
  accepted_at timestamptz not null,
  valid_before bigint not null,
  has_code boolean not null default false, -- payments of payers with code settle in separate batches
  -- Why the payment waits for cheaper gas. Null if it doesn't, or once it is claimed.
  -- gas_cost:      its fee doesn't cover its share of the gas
  -- gas_budget:    it expires soon, but the operator doesn't pay the gas that its fee doesn't cover
  -- gas_allowance: it pays no fee, and no allowance covers its share
  held_by text check (held_by in ('gas_cost', 'gas_budget', 'gas_allowance')),
  -- The row of gas_draw in which gas money is reserved for the payment (its drawer and day), the reserved amount, and the part of that amount which
  -- the payment's transactions have used.
  gas_drawer text,
  gas_day date,
  gas_reserved usdc_amount not null default 0,
  gas_spent usdc_amount not null default 0,
  is_tab boolean not null default false, -- tabs settle in separate batches
  may_be_voided boolean not null default false, -- triggers count the payment only after the seller's middleware had time to void it
  -- Unix seconds at which the payment must be sent, regardless of its gas cost (packages/ledger/queue/triggers.ts): when two fifths of the payment's
  -- validity are left, but not earlier than 15 minutes before it expires. With a validity of five minutes, the middleware has 150 s to void a payment
  -- whose answer it never received, and the keeper has two minutes.
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
-- Each row is written three times and then deleted, so vacuum runs early and pages keep room for new versions of their rows.
with (autovacuum_vacuum_scale_factor = 0.02, fillfactor = 70);

create index queue_payee on queue (group_id, payee, stage, accepted_at);
create index queue_oldest on queue (group_id, is_tab, has_code, accepted_at, payment_id)
  where stage = 'waiting' and due_at is null;
create index queue_urgent on queue (group_id, urgent_at) where stage in ('waiting', 'deferred', 'retrying', 'isolated');
-- The largest payments first, without micropayments, which are below any high-value threshold.
create index queue_greatest on queue (group_id, (provider_amount + fee_amount))
  where stage = 'waiting' and due_at is null and provider_amount + fee_amount >= 1000000;
-- Payments that a caller waits for, in order of arrival for each caller, so that callers take turns. A caller without an API key is identified by the
-- payee.
create index queue_due on queue (group_id, has_code, (coalesce(provider_id, payee)), due_at)
  where stage = 'waiting' and due_at is not null;
-- The open requests of a facilitator caller: its reservations, and the payments that it waits for.
create index queue_caller on queue (coalesce(provider_id, payee)) where stage = 'reserved' or due_at is not null;
create index queue_next on queue (stage, group_id, next_at) where stage in ('reserved', 'deferred', 'retrying', 'isolated');
create index queue_payer on queue (payer);
create index queue_batch on queue (batch_id) where batch_id is not null;
create index queue_provider on queue (provider_id);
create index queue_submission on queue (submission) where submission is not null;
create index queue_held on queue (group_id, held_by) where held_by is not null;
create index queue_failed on queue (provider_id, accepted_at desc, payment_id desc) where attempts > 0;

-- The results of payments. A row is deleted by a reorg, by a requeue, or if the provider settles a payment that it voided; the payment is
-- then in the queue again.
create table payment_result (
  payment_id text primary key,
  -- spent:   no part is left to settle on chain, but that isn't final yet
  -- settled: the provider's part has arrived, and that is final
  -- failed:  no longer attempted; until it expires, anyone who has the signatures can still settle it
  -- voided:  the provider did not serve, or the payment wasn't sent while its caller waited
  kind text not null check (kind in ('spent', 'settled', 'failed', 'voided')),
  code text,                   -- the reason why it failed, or why its fee is missing
  ended_at timestamptz not null,
  final_at timestamptz,        -- since when no part of it can move any more; null: a part can still move
  attempts smallint not null default 0,
  -- If final: which halves arrived, as bits: 1 the provider's half, 2 the fee. The payment is then in the providers' sums.
  arrived smallint check (arrived between 0 and 3),
  settlement_seconds integer,  -- if settled: seconds from its acceptance to the block of its last half
  -- If final, and if a half arrived more than two days after acceptance: when the last half arrived. Bookkeeping finds these payments by this time,
  -- and all other payments by their acceptance time (packages/ledger/sales/bookings.ts).
  late_at timestamptz,
  -- Copied from the payment, for the indexes.
  provider_id text,
  payer address not null,
  chain_id integer not null,
  accepted_at timestamptz not null,
  valid_before bigint not null,
  is_partial boolean not null default false, -- one half arrived, and the other never can
  check ((final_at is null) = (arrived is null)),
  check (late_at is null or final_at is not null),
  check (kind <> 'spent' or final_at is null),
  check (kind <> 'settled' or final_at is not null),
  check (kind <> 'failed' or code is not null)
);
create index payment_result_payer on payment_result (payer, final_at);
create index payment_result_payer_failed on payment_result (payer) where code is not null;
create index payment_result_late on payment_result (late_at) where late_at is not null;
create index payment_result_open on payment_result (chain_id, valid_before) where final_at is null;
create index payment_result_spent on payment_result (chain_id) where kind = 'spent';
create index payment_result_exceptional on payment_result (provider_id, accepted_at desc, payment_id desc)
  where kind in ('failed', 'voided') or is_partial;
create index payment_result_provider_open on payment_result (provider_id, accepted_at desc, payment_id desc) where final_at is null;

-- Payments whose signatures were published by /settlements/pending. The row is committed before the signatures are sent. These payments can't be
-- voided.
create table publication (
  payment_id text primary key references payment on delete cascade,
  published_at timestamptz not null
);

-- Payments with a half whose authorization was used on chain, but by a transaction that isn't in the record. The keeper looks the transaction up.
create table lookup (
  payment_id text primary key references payment on delete cascade,
  chain_id integer not null,
  requested_at timestamptz not null,
  -- If nothing is found, the next attempt is scheduled later, so that other rows come first.
  look_at timestamptz not null default '-infinity',
  looks smallint not null default 0 -- number of attempts without a result
);
create index on lookup (chain_id, look_at, requested_at);

-- For payments through the x402 facilitator: the seller, and whether it got the answer that the payment is settled.
create table facilitation (
  payment_id text primary key references payment on delete cascade,
  provider_id text references provider, -- the owner of the API key in the request; null: there was none
  payer address not null,
  payment_identifier text check (payment_identifier ~ '^[A-Za-z0-9_-]{16,128}$'),
  answered_at timestamptz,              -- when the keeper began to send the answer to a caller; null: not yet, or it couldn't be sent
  told_at timestamptz check (told_at is null or answered_at is not null) -- when the answer was sent; it is sent only once
);
create unique index facilitation_identifier on facilitation (payer, payment_identifier) where payment_identifier is not null;

-- Refunds, which a provider's wallet pays to the payer of another payment. They settle like any other payment.
create table refund (
  payment_id text primary key references payment, -- the refund itself
  of_payment_id text not null references payment,
  number smallint not null check (number between 1 and 3), -- part of the refund's nonce; the keeper pays the gas of three refunds per payment
  provider_id text not null references provider,
  accepted_at timestamptz not null,
  released_at timestamptz, -- since when it no longer counts in refund_total, because it failed and can't move any more
  unique (of_payment_id, number)
);
create index on refund (provider_id, accepted_at, payment_id);
create index refund_accepted on refund (accepted_at); -- for the metric of failed refunds

-- The total of a payment's refunds that moved or can still move. Adding a refund locks the row, so that the total never exceeds the paid amount.
create table refund_total (
  payment_id text primary key references payment,
  amount usdc_amount not null,
  paid usdc_amount not null,
  check (amount <= paid)
);

-- A pass: the right to make requests until ends_at, limited or unlimited in number. The request that bought the pass counts as the first one. Only
-- the payment counts as a sale. The JWS that the buyer presents is signed from this row and isn't stored (docs/passes.md).
create table pass (
  payment_id text primary key,
  provider_id text not null,
  endpoint_id text not null, -- the only endpoint that the pass is valid for
  payer address not null,
  bound_to text not null check (bound_to in ('payer', 'bearer')),
  starts_at timestamptz not null, -- when the payment was accepted
  ends_at timestamptz not null check (ends_at > starts_at),
  requests integer check (requests > 0), -- number bought; null: unlimited
  used integer not null default 0 check (used >= 0),
  last_used_at timestamptz, -- set only if its requests are counted
  -- Why the pass ended before ends_at; maintained by follow_passes. unpaid: its payment failed, or an attempt to settle its payment failed. The pass
  -- is valid again once the payment has settled.
  end_reason text check (end_reason in ('refunded', 'voided', 'unpaid')),
  ended_at timestamptz,
  -- A pass is never overused, even if the code has a bug.
  constraint pass_is_not_overused check (used <= requests),
  check (requests is not null or used = 0),
  check ((end_reason is null) = (ended_at is null))
);
create index pass_provider on pass (provider_id, starts_at desc, payment_id desc);
create index pass_endpoint on pass (endpoint_id, starts_at desc, payment_id desc);
create index pass_payer on pass (provider_id, payer, starts_at desc, payment_id desc);
-- For the list of ended passes, which middleware reads each minute.
create index pass_ended on pass (provider_id, payment_id, ends_at) where end_reason is not null;

-- Each request that was counted on a pass, so that a repeated call counts it once. Deleted some time after the pass.
create table pass_use (
  payment_id text not null references pass on delete cascade,
  use_id uuid not null, -- chosen by the provider's middleware
  used_at timestamptz not null default now(),
  returned_at timestamptz, -- since when it isn't counted, because the provider failed to serve the request
  primary key (payment_id, use_id)
);

-- Debts that the operator forgave (tollkeeper payer forgive).
create table forgiven_debt (
  payment_id text primary key references payment,
  reason text not null check (length(reason) between 1 and 500),
  forgiven_at timestamptz not null default now()
);

-- The maximum that an operator lets a payer owe on tabs beyond its earned credit. It replaces TAB_CREDIT_USDC and doesn't draw from the
-- day's budget. 0: the payer buys on tabs only within earned credit.
create table granted_credit (
  chain_id integer not null,
  payer address not null,
  amount usdc_amount not null,
  reason text not null check (length(reason) between 1 and 500),
  granted_at timestamptz not null default now(),
  primary key (chain_id, payer)
);

-- The request and signatures with which a payment was presented. They are needed only until the payment is final, so they are deleted some
-- time later (packages/ledger/results/retention.ts). They are separate from the payment, because each update of a row writes the whole row.
create table presentation (
  payment_id text primary key,
  request_hash bytea not null, -- SHA-256 of the request: a repeated idempotency key is accepted only if the hash is equal
  idempotency_key text,
  released_at timestamptz,     -- when the request ended without an answer: one later request may take over the payment
  signature bytea not null check (length(signature) between 65 and 1024), -- signature of the authorization of half 0
  fee_signature bytea check (length(fee_signature) between 65 and 1024),  -- signature of the authorization of half 1; null: there is none
  trace bytea check (octet_length(trace) = 24) -- trace of its request: 16 bytes of trace id and 8 of span id; null: untraced
);

-- One row per authorization. The unique key rejects a replay, even if the code has a bug.
create table signed_authorization (
  payment_id text not null,
  half smallint not null check (half in (0, 1)), -- 0: the provider's part, or the whole payment; 1: the platform's fee
  chain_id integer not null,
  token address not null,
  authorizer address not null,
  recipient address not null,
  value usdc_amount not null,
  valid_after bigint not null check (valid_after >= 0 and valid_after < 1099511627776),
  valid_before bigint not null check (valid_before > valid_after and valid_before < 1099511627776),
  nonce bytes32 not null,
  accepted_block bigint, -- set if the nonce isn't bound to the challenge: if it was used at or before this block, another payment used it
  primary key (payment_id, half)
);
create unique index signed_authorization_key on signed_authorization (authorization_key(chain_id, token, authorizer, nonce));

-- Splitters for which payments were accepted, and their terms. Their balances are read from the chain (packages/ledger/batches/sweeps.ts).
create table splitter (
  chain_id integer not null,
  token address not null,
  address address not null,
  provider address not null,
  platform address not null,
  provider_share bigint not null,
  platform_share bigint not null,
  look_at timestamptz not null default now(), -- when to check next whether funds have waited in it for too long
  failed_sweeps smallint not null default 0,  -- number of failed sweeps in a row; if above 0, the splitter isn't swept until look_at
  failed_block bigint, -- block of the last failed sweep, so that a receipt that is read again doesn't count twice
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
  fence bigint not null default 1, -- increases with every new holder; each write of a holder must match it
  expires_at timestamptz not null,
  paused_until timestamptz,        -- until when the wallet is paused, because it has no gas money or its transactions revert
  paused_reason text,
  primary key (chain_id, address)
);

-- Cost of settling by UTC day, in USDC base units.
create table gas_cost (
  chain_id integer not null,
  day date not null,
  cost numeric(78, 0) not null,
  primary key (chain_id, day)
);

-- Amounts drawn on a UTC day for gas that no fee covers, in USDC base units: reserved or spent. The drawers are:
-- a provider's id: the provider's grant
-- 'common':        the allowance that all providers without a grant share
-- 'refunds':       the pool for refunds of providers without a grant
-- 'budget:8453':   the operator's budget on the chain 8453, for gas beyond the payments' fees
-- On test networks, the first three have the suffix ':test'. draw_gas keeps reservations within the drawer's limit, even if several callers
-- draw at the same time. Only bookGas may exceed the limit, by the cost of a mined transaction, because that money is already spent.
create table gas_draw (
  day date not null,
  drawer text not null,
  drawn numeric(78, 0) not null check (drawn >= 0),
  primary key (day, drawer)
);

-- A keeper's latest estimate of the cost of the next batch, in USDC base units. It decides which thresholds of the triggers apply.
create table settling_cost (
  chain_id integer primary key,
  cost numeric(78, 0) not null,
  seen_at timestamptz not null
);

-- Networks on which nothing is sent until the stored time, because gas costs more than MAX_FEE_GWEI.
create table settlement_hold (
  chain_id integer primary key,
  held_until timestamptz not null
);

create table batch (
  id bigint generated always as identity primary key,
  batch_id bytes32 not null unique, -- random; the id in the event BatchSettled
  chain_id integer not null,
  token address not null,
  fee_recipient address not null,
  trigger text not null check (trigger in ('amount', 'count', 'time', 'high_value', 'expiry', 'submission')),
  -- Tabs have a separate kind of batch, because another contract settles them.
  lane text not null check (lane in ('facilitator', 'shared', 'high_value', 'submission', 'code', 'isolated', 'tab')),
  wallet address not null,
  fence bigint not null,
  -- claimed: nothing is signed yet. broadcast: a transaction is stored and may have been sent. mined: waits for its confirmation depth.
  -- reorged: was mined, but a reorg dropped it.
  state text not null default 'claimed'
    check (state in ('claimed', 'broadcast', 'mined', 'reorged', 'closed')),
  result text check (result in ('settled', 'nothing_left', 'released', 'reverted', 'lost')), -- reason for closing it
  created_at timestamptz not null default now(),
  closed_at timestamptz,
  check ((state = 'closed') = (closed_at is not null)),
  check ((state = 'closed') = (result is not null))
);
create unique index batch_unsigned on batch (chain_id, wallet) where state = 'claimed'; -- a wallet signs its batches one after another
create index batch_open on batch (chain_id, wallet) where state <> 'closed';

-- The payments of a batch, the most urgent first. A payment's current batch is in its queue row.
create table batch_item (
  batch_id bigint not null references batch on delete cascade,
  position integer not null,
  payment_id text not null,
  provider_outcome smallint, -- result of each half in our transaction, as the contract's number
  fee_outcome smallint,
  gas numeric(78, 0),      -- amount that its transaction added to queue.gas_spent; a reorg subtracts the amount again
  is_dropped boolean not null default false, -- the payment left the batch before anything was signed, so no transaction contains it
  gas_drawer text,         -- the drawer of gas_draw that `gas` was charged to
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
  raw bytea,                -- null: deleted some time after it was final (packages/ledger/results/retention.ts)
  gas bigint not null,
  max_fee_per_gas numeric(78, 0) not null,
  max_priority_fee_per_gas numeric(78, 0) not null,
  created_at timestamptz not null default now(),
  tried_at timestamptz,     -- when it was last sent to the nodes
  broadcast_at timestamptz, -- when a node last accepted it
  mined_block bigint,
  mined_block_hash bytes32,
  succeeded boolean,        -- its receipt's status
  resolved_at timestamptz,  -- when the nonce was resolved: this or another transaction with the nonce is final
  -- Cost and results of the mined transaction, so that a reorg can revert them.
  cost numeric(78, 0),      -- cost of its gas, in USDC base units, as added to gas_cost; null: not mined
  cost_day date,
  refused text[],           -- payers whose payments failed in it, counted in payer.mined_failures
  beyond numeric(78, 0),    -- amount drawn from the operator's budget on cost_day, for gas that neither fees nor other draws cover
  check (raw is not null or resolved_at is not null),
  check ((cost is null) = (cost_day is null) and (cost is null) = (refused is null))
);
create unique index transaction_slot on transaction (chain_id, wallet, nonce, max_fee_per_gas);
-- A wallet may have several batches in flight, each with a different nonce.
create unique index transaction_nonce on transaction (chain_id, wallet, nonce) where kind = 'settle' and resolved_at is null;
create index transaction_batch on transaction (batch_id);
create index transaction_open on transaction (chain_id, wallet) where resolved_at is null;
create index transaction_with_bytes on transaction (batch_id) where raw is not null;

-- A failure that was the payment's own fault, as our simulation or transaction showed.
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
-- The record has every use and cancellation of our authorizations, and every batch, with the block that showed it. It is read from the receipts of
-- our transactions and from the index (packages/ledger/facts/record.ts). A reorg deletes a block's row together with everything that the block
-- showed. All code that decides what is paid reads only this record.

-- The last block up to which the index was read into the record.
create table record_head (
  chain_id integer primary key,
  block_number bigint not null, -- the record is complete up to this block
  read_number bigint not null,  -- the index was read up to this block, but may have had gaps between the two blocks
  block_time bigint not null,   -- time of the block `read_number`, Unix seconds
  read_at timestamptz not null default clock_timestamp(),
  check (block_number <= read_number)
);

create table recorded_block (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  number bigint not null,
  hash bytes32 not null,
  time bigint not null,     -- Unix seconds
  confirmed_at timestamptz, -- time of the block that gave it enough confirmations; providers were then notified of its events
  -- Whether the payments with events in the block were checked: 0 not yet, 1 before it was final, 2 after it was final.
  looked smallint not null default 0 check (looked between 0 and 2),
  is_final boolean not null default false,     -- too deep for a reorg, so it isn't compared with the chain again
  unique (chain_id, number, hash)
);
create index recorded_block_unconfirmed on recorded_block (chain_id, number) where confirmed_at is null;
create index recorded_block_young on recorded_block (chain_id, number) where not is_final;
create index recorded_block_new on recorded_block (chain_id, number) where looked < 2;

create table authorization_event (
  payment_id text not null,
  half smallint not null,
  -- settled:     the authorization was used for the transfer that was accepted
  -- foreign_use: its nonce was used by another authorization, or before the payment was accepted; or the tab settled in a state that paid a
  --              line less than was charged on it, or paid our platform less than its part
  -- cancelled:   its payer cancelled it
  state text not null check (state in ('settled', 'foreign_use', 'cancelled')),
  source text not null check (source in ('receipt', 'index', 'lookup')),
  tx_hash bytes32 not null,
  log_index integer not null,
  batch_log_index integer,  -- log index of its BatchSettled, according to the index; null if the event is from our own receipt
  block_id bigint not null references recorded_block on delete cascade,
  splitter address, -- the splitter that it paid
  -- If a tab settled under other terms than the accepted ones: how many basis points of the platform's part went to another platform, or to a larger
  -- reward.
  lost_fee_share smallint not null default 0 check (lost_fee_share between 0 and 10000),
  -- If a tab settled under the accepted terms, but in a state with lines that tab_line doesn't have: [{split, amount}] of each such line with
  -- an amount above 0. These amounts become the payer's credit.
  unknown_lines jsonb,
  primary key (payment_id, half) -- same key as signed_authorization: rows of both tables are deleted together
);
create index authorization_event_block on authorization_event (block_id);
-- Uses the first four bytes, which distinguish transactions as well as the full hash.
create index authorization_event_transaction on authorization_event (left(tx_hash, 10));
create index authorization_event_splitter on authorization_event (splitter, block_id) where splitter is not null;

-- Payouts of our splitters, regardless of who swept them.
create table payout (
  splitter address not null,
  block_id bigint not null references recorded_block on delete cascade,
  log_index integer not null, -- log index of the Transfer to the platform; the Transfer to the provider follows it
  tx_hash bytes32 not null,
  is_platform_paid boolean not null, -- false: the platform's wallet couldn't be paid, so its part waits in a splitter that pays only the platform
  primary key (splitter, block_id, log_index)
);
create index payout_block on payout (block_id);

-- Each BatchSettled event of a batch of USDC payments, regardless of who called `settle`.
create table settled_batch (
  id bigint generated always as identity primary key,
  chain_id integer not null,
  block_id bigint not null references recorded_block on delete cascade,
  block_time bigint not null,
  position bigint not null, -- block number * 2^20 + log index: orders batches of the same second
  log_index integer not null,
  tx_hash bytes32 not null,
  sequence integer,         -- its number among the chain's batches, as the index counts them; null: so far only our receipt showed it
  keeper address not null,  -- the caller of `settle`
  trigger smallint not null,
  payment_count integer not null,
  provider_total numeric(78, 0) not null,
  fee_total numeric(78, 0) not null,
  gas_used bigint not null, -- gas of the whole transaction
  gas_cost numeric(78, 0) not null, -- wei, L1 fee included
  is_first boolean not null, -- whether it is the first batch of its transaction: the transaction's gas counts only there
  unique (block_id, log_index)
);
create index settled_batch_newest on settled_batch (chain_id, block_time desc, position desc);
create index settled_batch_keeper on settled_batch (chain_id, keeper, block_time desc, position desc);
create index settled_batch_sequence on settled_batch (chain_id, sequence);
create index settled_batch_transaction on settled_batch (tx_hash);

-- The amount that one wallet received in one batch.
create table batch_recipient (
  batch_id bigint not null references settled_batch on delete cascade,
  recipient address not null,
  chain_id integer not null,
  block_time bigint not null, -- this and the next column are copied from the batch
  position bigint not null,
  payment_count integer not null,
  total numeric(78, 0) not null,
  primary key (batch_id, recipient)
);
create index batch_recipient_newest on batch_recipient (chain_id, recipient, block_time desc, position desc);

-- A keeper's settlements on a UTC day. Sums over time are computed from these rows, so their cost doesn't grow with the number of batches.
create table keeper_day (
  chain_id integer not null,
  day date not null,
  keeper address not null,
  batches integer not null,
  payments integer not null,
  total numeric(78, 0) not null, -- total amount moved, including fees
  gas_used numeric(78, 0) not null,
  gas_cost numeric(78, 0) not null,
  primary key (chain_id, day, keeper)
);

-- USD price of a chain's gas token at a block, from its price feed. Queries join it by the block's hash.
create table gas_token_price (
  chain_id integer not null,
  block_hash bytes32 not null,
  usd numeric(78, 0) not null, -- USDC base units for 10^18 wei
  primary key (chain_id, block_hash)
);

-- Notifications to providers ----------------------------------------------------------------------------------------------

create table batch_notification (
  chain_id integer not null,
  tx_hash bytes32 not null,
  log_index integer not null,
  provider_id text not null references provider,
  block_hash bytes32 not null,
  occurrence integer not null default 1, -- increases if a reorg moves it to another block
  primary key (chain_id, tx_hash, log_index, provider_id)
);

-- Events, written in the transaction that causes them. The api delivers them. The keeper, which holds the gas keys, only writes them here.
create table outbox (
  id bigint generated always as identity primary key,
  event text not null,
  provider_id text not null references provider,
  payment_id text references payment,
  tx_hash bytes32,
  occurrence integer not null default 1, -- increases if the event happens to the payment again, such as a settlement after a reorg
  data jsonb not null,
  created_at timestamptz not null default now(),
  dispatched_at timestamptz -- when its deliveries were created, one per receiver
);
-- The index contains provider_id, because each provider that sold on a tab receives the tab's events. payment_id is the first column, because the
-- deletion of a payment searches for it.
create unique index outbox_once on outbox (payment_id, event, provider_id, coalesce(tx_hash, ''), occurrence)
  where payment_id is not null;
create index on outbox (id) where dispatched_at is null;

create table webhook (
  id text primary key check (id ~ '^wh_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  url text not null check (length(url) <= 2000),
  description text not null default '' check (length(description) <= 200),
  events text[] not null check (cardinality(events) > 0),
  -- Stored as plain text, because signing needs them. The previous secret stays valid while the receiver switches to the new one.
  secret text not null,
  previous_secret text,
  previous_secret_expires_at timestamptz,
  created_at timestamptz not null default now(),
  deleted_at timestamptz,   -- deleted by its provider; the log keeps its deliveries
  disabled_at timestamptz,  -- since when it gets no messages, because the receiver answered 410 Gone
  -- How the receiver answered its last attempts. A slow receiver, or one that doesn't answer, must not delay other receivers' messages: all slow
  -- receivers share a part of the senders, and a receiver that doesn't answer is paused for a while.
  answers_soon boolean not null default false,
  silences smallint not null default 0, -- number of attempts in a row without an answer
  paused_until timestamptz,
  check ((previous_secret is null) = (previous_secret_expires_at is null))
);
create index webhook_of_provider on webhook (provider_id) where deleted_at is null;

-- One message to one receiver.
create table webhook_delivery (
  id text primary key check (id ~ '^whd_[0-9a-f]{32}$'),
  outbox_id bigint not null references outbox,
  webhook_id text not null references webhook,
  message_id text not null, -- equal for the same event, so that receivers can deduplicate
  attempts smallint not null default 0,
  -- Null: nothing left to do. A sender sets a later time before it sends. If it dies, another sender sends the message again at that time.
  next_attempt_at timestamptz,
  delivered_at timestamptz,
  created_at timestamptz not null,
  unique (outbox_id, webhook_id)
);
create index webhook_delivery_due on webhook_delivery (webhook_id, next_attempt_at) where next_attempt_at is not null;
create index webhook_delivery_log on webhook_delivery (webhook_id, created_at desc, id desc);

-- One delivery attempt. If it has no end, it was interrupted, possibly after the receiver got the message.
create table webhook_attempt (
  delivery_id text not null references webhook_delivery on delete cascade,
  attempt smallint not null,
  started_at timestamptz not null,
  ended_at timestamptz,
  status smallint,     -- status of the HTTP response, if there was one
  failure text,        -- error code, if the message didn't count as received
  detail text,
  response text,       -- start of the body
  primary key (delivery_id, attempt)
);

-- Contacts whose owner has confirmed that mail to the contact is read. Mail is sent only to these contacts. A row counts only while it matches the
-- provider's current contact.
create table confirmed_contact (
  provider_id text primary key references provider,
  address text not null,
  confirmed_at timestamptz not null,
  sent_at timestamptz,
  attempts smallint not null default 0, -- number of attempts to send the mail that is due
  -- Null: no mail is due. A sender sets a later time before it sends. If it dies, another sender sends the mail again at that time.
  next_attempt_at timestamptz
);
create index on confirmed_contact (next_attempt_at) where next_attempt_at is not null;

-- Contents of the next mail to a provider.
create table mail_notice (
  outbox_id bigint primary key references outbox,
  provider_id text not null references confirmed_contact
);
create index on mail_notice (provider_id, outbox_id);

-- Providers' sums ----------------------------------------------------------------------------------------------------

-- Only finalized payments are in these sums, because their money can't move any more. All other payments are summed from the record at each query, so
-- a reorg shows immediately. A payment that is reopened (after a reorg deeper than the confirmation depth) is subtracted from the sums.
create table revenue (
  provider_id text not null references provider,
  period text not null check (period in ('hour', 'day', 'month')), -- UTC
  starts_at timestamptz not null, -- a payment belongs to the period in which it was accepted
  endpoint_id text references endpoint, -- null: sold through the facilitator
  chain_id integer not null,
  payee address not null,
  payments integer not null,      -- excludes voided payments
  voided_payments integer not null,
  settled_payments integer not null,
  failed_payments integer not null,
  tab_payments integer not null default 0, -- how many of `payments` are requests on tabs
  gross numeric(78, 0) not null,  -- base units; gross = net + fee
  fee numeric(78, 0) not null,
  settled_net numeric(78, 0) not null,
  settled_fee numeric(78, 0) not null,
  failed_net numeric(78, 0) not null,
  unique nulls not distinct (provider_id, period, starts_at, endpoint_id, chain_id, payee)
);
create index revenue_day on revenue (starts_at) where period = 'day'; -- for sums over the whole gateway

-- The same sums by payer: one row for all time, and one row for each endpoint, month and day (UTC).
create table payer_revenue (
  provider_id text not null references provider,
  period text not null check (period in ('all', 'month', 'day')),
  starts_at timestamptz not null, -- for the period 'all': the epoch
  endpoint_id text references endpoint, -- null: sold through the facilitator or, for the period 'all', all endpoints together
  chain_id integer not null,
  payer address not null,
  payments integer not null,
  voided_payments integer not null default 0,
  settled_payments integer not null default 0,
  failed_payments integer not null default 0,
  tab_payments integer not null default 0,
  gross numeric(78, 0) not null,
  fee numeric(78, 0) not null default 0,
  settled_net numeric(78, 0) not null,
  settled_fee numeric(78, 0) not null default 0,
  failed_net numeric(78, 0) not null default 0,
  -- When the payer's first and last payments were accepted, without voided payments. Null: all payments were voided. If a payment is later subtracted
  -- from the sums, these times don't change.
  first_accepted_at timestamptz,
  last_accepted_at timestamptz,
  -- The fees that settled with these payments, less the rewards for settling them. A payer's credit grows with its settled amount, but never beyond
  -- these fees. So an owner of several wallets earns no credit by moving money between them.
  kept_fee numeric(78, 0) not null default 0,
  check (period <> 'all' or endpoint_id is null),
  unique nulls not distinct (provider_id, period, starts_at, endpoint_id, chain_id, payer)
);
-- For one payer of one provider, by time.
create index payer_revenue_times on payer_revenue (payer, provider_id, period, starts_at);
create index payer_revenue_payer on payer_revenue (payer, chain_id) where period = 'all';
-- For the list of a provider's payers in its three sort orders, and for the provider's payers with failed payments.
create index payer_revenue_top on payer_revenue (provider_id, gross desc, chain_id, payer) where period = 'all';
create index payer_revenue_busiest on payer_revenue (provider_id, payments desc, chain_id, payer) where period = 'all';
create index payer_revenue_newest on payer_revenue (provider_id, last_accepted_at desc, chain_id, payer) where period = 'all';
create index payer_revenue_failed on payer_revenue (provider_id) where period = 'all' and failed_payments > 0;

-- Time from the acceptance of payments to the block that settles them, as a histogram for each UTC day of acceptance. Answers about this time come
-- from the histogram, so they neither read nor reveal individual payments.
create table settlement_time (
  chain_id integer not null,
  day date not null,
  bucket smallint not null, -- for durations up to e^(bucket / 20) seconds; each bucket is 5 % wide (settlement_bucket)
  payments integer not null,
  primary key (chain_id, day, bucket)
);

-- Counters -----------------------------------------------------------------------------------------------------------

-- Calls to the gateway by result: 'challenged', 'paid', or the error code of a refusal. Each process counts in memory and adds its counts
-- every few seconds, so a request costs no write; a crash loses the counts of those seconds.
create table usage (
  provider_id text not null references provider,
  period text not null check (period in ('hour', 'day', 'month')), -- UTC
  starts_at timestamptz not null,
  endpoint_id text not null references endpoint,
  outcome text not null check (length(outcome) <= 50),
  calls bigint not null,
  primary key (provider_id, period, starts_at, endpoint_id, outcome)
);

-- Requests counted for rate limits, collected from the api processes every second. The table is unlogged, so a crash resets the counts of
-- the current minute.
create unlogged table request_count (
  key text not null,
  window_start bigint not null, -- Unix seconds
  count bigint not null,
  primary key (window_start, key)
);

-- Number of rare actions, such as registrations and mailed codes, in the window that ends at ends_at.
create table quota (
  ends_at timestamptz not null,
  counted text not null, -- the action and its subject
  count integer not null,
  primary key (ends_at, counted)
);

-- Backups -------------------------------------------------------------------------------------------------------------

-- Backups that the operator's job reported (tollkeeper backup record). Postgres has no record of dumps and snapshots, and only the host
-- knows the backups of a managed server.
create table backup (
  id bigint generated always as identity primary key,
  taken_at timestamptz not null, -- a restore has everything up to this time
  kind text not null check (kind in ('dump', 'base', 'snapshot')),
  recorded_at timestamptz not null default now(),
  check (taken_at <= recorded_at)
);
create index backup_newest on backup (taken_at desc);

-- Tabs ----------------------------------------------------------------------------------------------------------------
--
-- Open tabs are in the tab store (packages/ledger/tabs), which may be another database. A tab that closes becomes one payment of source
-- `tab` here: one authorization, which pays the TabSettlement contract, and its lines (docs/tabs.md).

-- The payer of each tab. A tab is identified by payer and id together, because clients choose ids. If a client names only the id, the payer is read
-- here. The row stays after the tab has ended, so that the id never identifies another tab. It is deleted only together with a reservation on which
-- nothing was bought.
create table tab_claim (
  tab_id text primary key check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  chain_id integer not null,
  token address not null,
  payer address not null,
  nonce bytes32 not null
);
-- A payment must not use the nonce of a tab, because the tab could then not become a payment.
create unique index tab_claim_nonce on tab_claim (authorization_key(chain_id, token, payer, nonce));

-- Credit for open tabs, reserved in steps. It counts as owed until the tab is closed and its payment replaces it.
create table tab_reservation (
  payer address not null,
  tab_id text not null,
  chain_id integer not null,
  token address not null,
  reserved usdc_amount not null,
  reserved_at timestamptz not null default now(), -- time of the latest step
  primary key (payer, tab_id)
);

-- The total that all payers borrowed on a UTC day beyond their earned credit and didn't return, in USDC base units. Test networks have a separate
-- budget. The constraint keeps the total within the budget, even if the code has a bug.
create table tab_budget (
  day date not null,
  money text not null check (money in ('real', 'test')),
  lent numeric(78, 0) not null default 0,
  budget numeric(78, 0) not null, -- the day's limit at the latest loan, or the amount lent if the operator lowered the limit below it
  primary key (day, money),
  check (lent between 0 and budget)
);

-- The loans of a tab, by the day whose budget they came from. When the tab closes, the unused part of its loans is subtracted. Once the tab's
-- settlement is final, the row is deleted. Rows of failed tabs stay, because that money is lost.
create table tab_loan (
  payer address not null,
  tab_id text not null,
  day date not null,
  money text not null,
  amount usdc_amount not null check (amount > 0),
  primary key (payer, tab_id, day),
  foreign key (day, money) references tab_budget
);

-- The minimum value that tabs.mark in the tab store must have: a lower value shows that the tab store was restored from an earlier time. At most one
-- row.
create table tab_store_mark (
  is_only boolean primary key default true check (is_only),
  number bigint not null check (number > 0)
);

-- Payments that are closed tabs. The row determines which of the states that the buyer signed settles. The other states are no longer needed.
create table tab_payment (
  payment_id text primary key,
  payer address not null,
  tab_id text not null check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  sequence bigint not null check (sequence > 0 and sequence < 1099511627776), -- number of the state that settles
  reward_share integer not null check (reward_share between 0 and 10000), -- signed reward for settling, in basis points of the platform's part
  requests integer not null check (requests > 0),
  close_reason text not null,
  opened_at timestamptz not null,
  unique (payer, tab_id)
);

-- The lines of each tab. A line is the amount that the tab pays for one provider's wallet and one pair of shares (the provider's and the platform's).
create table tab_line (
  payment_id text not null,
  position smallint not null,
  payee address not null,
  provider_share bigint not null check (provider_share >= 0 and provider_share < 281474976710656),
  platform_share bigint not null check (platform_share >= 0 and platform_share < 281474976710656),
  amount bigint not null check (amount >= 0 and amount < 281474976710656), -- amount that the buyer signed
  -- The part of `amount` that is owed. The rest becomes the payer's credit once it has moved.
  charged bigint not null check (charged between 0 and amount),
  -- The amount of this line that moved, if the tab settled in another state or under other terms. Null: the signed amount moved, or nothing has moved
  -- yet.
  moved bigint check (moved >= 0),
  primary key (payment_id, position)
);

-- Tabs that ended without a payment. The tab store deletes a tab some time after its end, but receipts name the id of its payment, so this
-- row is kept to answer queries for it. The payer and the signed terms are in tab_claim.
create table unpaid_tab (
  payment_id text primary key,
  tab_id text not null unique check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  contract address not null,
  platform address not null,
  reward_share integer not null check (reward_share between 0 and 10000),
  sequence bigint not null check (sequence > 0 and sequence < 1099511627776), -- number of the newest state
  requests integer not null check (requests > 0),
  expires_at bigint not null, -- the expiry that the buyer signed, Unix seconds
  close_reason text not null,
  opened_at timestamptz not null,
  closed_at timestamptz not null,
  charged usdc_amount not null, -- sum of the charges on all lines; none of it is ever paid
  fee_amount usdc_amount not null check (fee_amount <= charged), -- the platform's part of `charged`
  -- tab_too_small: the charged amount was too small to settle. authorization_used: another payment used its nonce. Null: nothing was
  -- charged.
  code text check (code in ('tab_too_small', 'authorization_used')),
  ended_at timestamptz not null default now(),
  check ((code is null) = (charged = 0))
);

-- Amounts that the platform owes to providers for tabs that defaulted within their payers' earned or granted credit. The platform pays at most the
-- fees that it kept from the payer's payments plus the granted credit. cover_defaults adds rows.
create table covered_default (
  payment_id text not null,
  provider_id text not null,
  payee address not null,
  chain_id integer not null,
  payer address not null,
  amount usdc_amount not null check (amount > 0), -- the part of the provider's missing amount that the platform bears
  covered_at timestamptz not null default now(),
  paid_tx bytes32, -- the operator's transaction that paid it; null: not paid yet
  paid_at timestamptz,
  primary key (payment_id, provider_id, payee),
  check ((paid_tx is null) = (paid_at is null))
);
create index covered_default_unpaid on covered_default (covered_at) where paid_tx is null;
create index covered_default_provider on covered_default (provider_id, covered_at);

-- The requests that were bought on one line of a tab from one endpoint within one hour. To its provider, a tab appears as such rows.
create table tab_sale (
  payment_id text not null,
  number smallint not null,
  position smallint not null, -- position of the line on the tab
  provider_id text not null,
  endpoint_id text not null,
  chain_id integer not null,
  payer address not null,     -- this and the next column are copied from the payment, for the indexes
  payee address not null,
  requests integer not null check (requests > 0),
  provider_amount usdc_amount not null,
  fee_amount usdc_amount not null,
  accepted_at timestamptz not null, -- when the last of these requests was accepted
  -- Time of the insert, to the millisecond. Receipts are listed in this order, because a tab is imported long after its first request.
  taken_at timestamptz not null default date_trunc('milliseconds', now()),
  -- If the tab's result is final: the amount that moved (both parts together), and how many basis points of the fee did not go to our platform. The
  -- row is then in the providers' sums.
  arrived usdc_amount,
  lost_fee_share smallint check (lost_fee_share between 0 and 10000),
  is_exceptional boolean not null default false, -- the tab's result is final, and it didn't settle completely
  primary key (payment_id, number)
);
create index tab_sale_provider on tab_sale (provider_id, accepted_at);
create index tab_sale_taken on tab_sale (provider_id, taken_at, payment_id);
create index tab_sale_endpoint on tab_sale (endpoint_id, accepted_at);
create index tab_sale_payer on tab_sale (payer, accepted_at);
create index tab_sale_open on tab_sale (provider_id, accepted_at) where arrived is null;
create index tab_sale_exceptional on tab_sale (provider_id, accepted_at) where is_exceptional;

-- Everything that providers sell, with one row per sale: a payment, or the requests on a tab that were bought from one endpoint within an
-- hour. Views, sums, events and limits read sales from this view, so none of them has to distinguish payments from requests. The searches are
-- in packages/ledger/sales.
--
-- Payments without a provider (refunds, tabs themselves, callers without an API key) have rows with provider_id null, which aren't sales. A
-- condition here, or a join, would prevent Postgres from reading the newest sales by the indexes of both tables.
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

-- Resources of sellers who use only the x402 facilitator. Payments declare them (extension `bazaar`), and a resource is stored once a payment that
-- declares it has settled. A resource belongs to the wallet that was paid for it, even if other sellers declare the same URL.
create table declared_resource (
  id bigint generated always as identity primary key,
  resource text not null check (length(resource) between 1 and 2048),
  chain_id integer not null,
  pay_to address not null,
  provider_id text references provider, -- owner of the API key with which the payment was settled; null: there was none
  x402_version smallint not null check (x402_version in (1, 2)),
  amount usdc_amount not null,
  max_timeout_seconds integer not null,
  description text not null check (length(description) <= 500),
  mime_type text not null check (length(mime_type) <= 200),
  service_name text,
  tags text[] not null,
  icon_url text,
  bazaar jsonb not null check (octet_length(bazaar::text) <= 32768), -- twice the limit of a declaration, because Postgres adds spaces
  declared_at timestamptz not null default now(), -- when a payment first declared it
  updated_at timestamptz not null default now(),  -- when it last changed
  settled_at timestamptz not null default now(),  -- when a payment for it last settled, to the minute
  -- Findings from the resource's own 402, as in endpoint_proof. The description in that 402 replaces the buyer's copy.
  proven_at timestamptz,
  checked_at timestamptz,
  next_check_at timestamptz not null default now(),
  failures smallint not null default 0,
  finding text,
  finding_code text -- a code of packages/ledger/discovery/sellerFindings.ts
);
create index on declared_resource (next_check_at);
create unique index declared_resource_key on declared_resource (md5(resource), chain_id, pay_to);
create index on declared_resource (pay_to);
create index on declared_resource (settled_at);

-- Whether the 402 of an endpoint's URL asks for payments to the endpoint's wallet. The api checks this by querying the URL, because
-- anyone can register anyone's URL, and URLs of different sellers on a shared host have the same origin.
create table endpoint_proof (
  endpoint_id text primary key references endpoint,
  url text not null,      -- the requested URL; findings hold only for this URL and the wallet in pay_to
  pay_to address not null,
  proven_at timestamptz,  -- when it last asked for payments to the wallet; null: never, or it now asks for payments to others
  checked_at timestamptz, -- null: never checked
  next_check_at timestamptz not null default now(),
  failures smallint not null default 0, -- number of failed checks in a row
  finding text,           -- why the URL isn't proven, or soon won't be
  finding_code text,      -- a code of packages/ledger/discovery/sellerFindings.ts
  asked_amount usdc_amount check (asked_amount > 0) -- the price in its own 402 when it was last proven; null: none in USDC
);
create index on endpoint_proof (next_check_at);

-- Arguments of functions ----------------------------------------------------------------------------------------------
--
-- Functions take arrays of rows, because reading fields of JSON by name took longer than all checks of a payment together.

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
  tab_id text, -- the tab that it settles; the tab has already reserved the amount and claimed the nonce
  -- Whose grant pays for its gas, the amount to draw, and the limit of the common allowance. Null: its fee covers the gas.
  gas_provider_id text, gas_amount numeric, gas_common numeric,
  pass_seconds integer, pass_requests integer, pass_bound_to text, -- the pass that it buys, or null
  deadline float8 -- Unix milliseconds by this database's clock; later, the payment isn't accepted, because its caller's request has timed out
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
