-- Intent only: what was accepted, what was signed, what was tried. Whether money moved is never written here;
-- it is a query over what Ponder indexed (store/halves.ts). Addresses, hashes and nonces are lower-case 0x-hex text,
-- the same form as Ponder's columns, so that the join needs no conversion. Amounts are USDC base units.

create domain usdc_amount as numeric(20, 0) check (value >= 0 and value < 18446744073709551616);
-- Decoded and encoded again, only lower-case hex is the same; a regular expression with {64} takes 25 times as long.
create domain address as text
  check (octet_length(value) = 42 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);
create domain bytes32 as text
  check (octet_length(value) = 66 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);

-- Registry -----------------------------------------------------------------------------------------------------------

create table provider (
  id text primary key check (id ~ '^prov_[0-9a-f]{32}$'),
  name text not null check (length(name) between 1 and 200),
  contact text,
  requires_key boolean not null default false, -- /verify for its endpoints takes its API key only
  void_violations integer not null default 0, -- payments it voided and then settled all the same
  created_at timestamptz not null default now()
);

create table api_key (
  id text primary key check (id ~ '^key_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  secret_hash bytea not null check (length(secret_hash) = 32), -- SHA-256 of a 256-bit random secret
  label text not null default '',
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
  unique (provider_id, chain_id, address)
);
create index on wallet (chain_id, address);

create table endpoint (
  id text primary key check (id ~ '^ep_[0-9a-f]{32}$'),
  provider_id text not null references provider,
  wallet_id text not null references wallet, -- who is paid; it fixes the network
  method text not null check (method in ('GET', 'POST', 'PUT', 'PATCH', 'DELETE', '*')),
  url text not null,                         -- the registered URL of the protected resource
  path text not null,                        -- its path, what a middleware without endpointId matches
  price usdc_amount not null check (price > 0),
  description text not null default '',
  mime_type text not null default 'application/json',
  created_at timestamptz not null default now(),
  disabled_at timestamptz
);
create unique index endpoint_route on endpoint (provider_id, method, path) where disabled_at is null;

-- Accepted payments --------------------------------------------------------------------------------------------------

-- The row that a verification locks, so that parallel requests of one payer are counted one after the other.
create table payer (
  chain_id integer not null,
  token address not null,
  address address not null,
  accepted_total numeric(78, 0) not null default 0, -- all that was ever accepted of it, both halves; only grows
  first_seen_at timestamptz not null default now(),
  primary key (chain_id, token, address)
);

create table payment (
  id text primary key check (octet_length(id) = 36 and 'pay_' || encode(decode(substr(id, 5), 'hex'), 'hex') = id),
  request_id text not null unique -- one challenge buys once
    check (octet_length(request_id) = 36 and 'req_' || encode(decode(substr(request_id, 5), 'hex'), 'hex') = request_id),
  provider_id text not null references provider,
  endpoint_id text not null references endpoint,
  chain_id integer not null,
  token address not null,
  payer address not null,
  payee address not null,         -- provider wallet as signed
  fee_recipient address not null, -- platform wallet as signed
  price usdc_amount not null,     -- what the challenge asked for, provider's part and fee together
  provider_amount usdc_amount not null, -- both as signed, as in signed_authorization: here for the queue's index
  fee_amount usdc_amount not null,
  valid_before bigint not null,   -- the sooner of the two, Unix seconds
  payer_has_code boolean not null default false, -- such payers are settled in batches of their own
  tier text not null,
  effective_rate text not null,
  resource text not null,
  receipt text not null,          -- the JWS handed out at acceptance
  idempotency_key text,
  request_hash bytea not null,    -- SHA-256 of what was presented: same key and same body, same answer
  challenged_at timestamptz not null,
  accepted_at timestamptz not null,
  -- how it goes on, as far as it is ours to decide
  attempts smallint not null default 0 check (attempts between 0 and 6),
  first_failed_at timestamptz,
  next_attempt_at timestamptz,
  failed_at timestamptz,          -- retries exhausted or expired; cleared by a requeue
  failure_code text,
  voided_at timestamptz,          -- service was not rendered
  published_at timestamptz,       -- committed before its signatures leave through /settlements/pending
  sought_at timestamptz,          -- a half is used on chain but not indexed: the evidence loop is to find out by whom
  concluded_at timestamptz,       -- nothing is left to do: no half is open, and the chain can't take that back any more
  foreign key (chain_id, token, payer) references payer,
  check (voided_at is null or published_at is null)
);
-- The queue: what is, or may become, the keeper's work.
create index payment_queue on payment (chain_id, token, fee_recipient, payee, accepted_at)
  where concluded_at is null and failed_at is null and voided_at is null;
create index payment_expiry on payment (chain_id, valid_before)
  where concluded_at is null and failed_at is null and voided_at is null;
create index payment_sought on payment (chain_id, sought_at) where sought_at is not null;
create index payment_voided on payment (chain_id, valid_before) where voided_at is not null;
create index payment_provider on payment (provider_id, accepted_at desc, id desc);
create index payment_payee on payment (chain_id, payee, accepted_at desc);
create index payment_payer on payment (chain_id, token, payer, concluded_at); -- what it owes (api, exposure.ts)

-- One row an authorization. The unique key is what makes a replay impossible, whatever the code does.
create table signed_authorization (
  payment_id text not null references payment on delete cascade,
  half smallint not null check (half in (0, 1)), -- 0: provider, 1: platform fee
  chain_id integer not null,
  token address not null,
  authorizer address not null,
  recipient address not null,
  value usdc_amount not null,
  valid_after bigint not null check (valid_after >= 0 and valid_after < 1099511627776),
  valid_before bigint not null check (valid_before > valid_after and valid_before < 1099511627776),
  nonce bytes32 not null,
  signature bytea check (length(signature) between 65 and 1024), -- null once wiped (voided and past validBefore)
  accepted_block bigint, -- for a nonce not bound to the challenge: a use mined at or before it is not this payment
  primary key (payment_id, half),
  unique (chain_id, token, authorizer, nonce)
);

-- A use or cancellation that no indexed batch explains: found on chain by its (authorizer, nonce) topics, held with the
-- block it stands in, dropped when that block is no longer canonical. A cache of the chain, like Ponder's tables.
create table evidence (
  chain_id integer not null,
  token address not null,
  authorizer address not null,
  nonce bytes32 not null,
  state text not null check (state in ('used', 'cancelled')),
  recipient address,
  value numeric(78, 0),
  tx_hash bytes32 not null,
  log_index integer not null,
  block_number bigint not null,
  block_hash bytes32 not null,
  block_time bigint not null,
  checked_at timestamptz not null default now(),
  is_final boolean not null default false, -- too deep for a reorg: not looked at again
  primary key (chain_id, token, authorizer, nonce),
  check (state = 'cancelled' or (recipient is not null and value is not null))
);

create index evidence_unsure on evidence (chain_id, token) where not is_final;

-- Settlement attempts ------------------------------------------------------------------------------------------------

create table wallet_lease (
  chain_id integer not null,
  address address not null,
  holder text not null,
  fence bigint not null default 1, -- grows with every new holder; every write of a holder names the one it was given
  expires_at timestamptz not null,
  paused_until timestamptz,        -- out of gas money, or its transactions revert: looked at again then
  paused_reason text,
  primary key (chain_id, address)
);

-- What POST /submit was asked to settle at once, kept until a wallet takes it up.
create table submission (
  id bigint generated always as identity primary key,
  key bytes32 not null unique, -- of the authorizations asked for: the same ones again are the same submission
  chain_id integer not null,
  token address not null,
  created_at timestamptz not null default now(),
  batch_id bigint,             -- null while it waits
  failure_code text            -- why it was given up; asking again revives it
);
create index submission_waiting on submission (chain_id, id) where batch_id is null and failure_code is null;

create table submission_payment (
  submission_id bigint not null references submission,
  payment_id text not null references payment,
  primary key (submission_id, payment_id)
);

-- Authorizations that came through POST /submit and belong to no payment of this gateway.
create table transfer (
  id bigint generated always as identity primary key,
  submission_id bigint not null references submission,
  fee_of bigint references transfer, -- the transfer that this one is the platform fee of
  chain_id integer not null,
  token address not null,
  authorizer address not null,
  recipient address not null,
  value usdc_amount not null,
  valid_after bigint not null check (valid_after >= 0 and valid_after < 1099511627776),
  valid_before bigint not null check (valid_before > valid_after and valid_before < 1099511627776),
  nonce bytes32 not null,
  signature bytea not null check (length(signature) between 65 and 1024),
  unique (chain_id, token, authorizer, nonce)
);
create index transfer_submission on transfer (submission_id);

create table batch (
  id bigint generated always as identity primary key,
  batch_id bytes32 not null unique, -- the random id that goes on chain
  chain_id integer not null,
  token address not null,
  fee_recipient address not null,
  trigger text not null check (trigger in ('amount', 'count', 'time', 'high_value', 'expiry', 'direct')),
  wallet address not null,          -- the zero address: handed over to another facilitator
  fence bigint not null,
  -- claimed: nothing is signed yet. broadcast: a transaction is stored, and may be out. mined: waits for its depth.
  -- displaced: was mined, and a reorg dropped it. handed_over: another facilitator has it.
  state text not null default 'claimed'
    check (state in ('claimed', 'broadcast', 'mined', 'displaced', 'handed_over', 'closed')),
  outcome text check (outcome in ('settled', 'nothing_left', 'released', 'reverted', 'lost')), -- why it was closed
  remote_hash bytes32,              -- what the other facilitator answered
  created_at timestamptz not null default now(),
  closed_at timestamptz,
  check ((state = 'closed') = (closed_at is not null)),
  check ((state = 'closed') = (outcome is not null))
);
create unique index batch_in_flight on batch (chain_id, wallet) where state in ('claimed', 'broadcast'); -- one open nonce
create index batch_open on batch (chain_id, wallet) where state <> 'closed';

alter table submission add foreign key (batch_id) references batch;

create table batch_item (
  batch_id bigint not null references batch on delete cascade,
  position integer not null, -- most urgent first
  payment_id text references payment,
  transfer_id bigint references transfer,
  active boolean not null default true, -- until the batch is over for it: for a settled one, deep enough on chain
  provider_outcome smallint,            -- the contract's digits, as our own transaction reported them
  fee_outcome smallint,
  primary key (batch_id, position),
  check ((payment_id is null) <> (transfer_id is null))
);
create unique index batch_item_active on batch_item (payment_id) where active; -- one open batch a payment
create unique index batch_item_transfer_active on batch_item (transfer_id) where active;
create index batch_item_payment on batch_item (payment_id);
create index batch_item_transfer on batch_item (transfer_id);

-- Every signed transaction, stored and committed before its broadcast: first sends, replacements, cancellations.
create table transaction (
  hash bytes32 primary key,
  batch_id bigint not null references batch,
  chain_id integer not null,
  wallet address not null,
  nonce bigint not null,
  kind text not null check (kind in ('settle', 'replacement', 'cancellation')),
  raw bytea not null,
  gas bigint not null,
  max_fee_per_gas numeric(78, 0) not null,
  max_priority_fee_per_gas numeric(78, 0) not null,
  created_at timestamptz not null default now(),
  tried_at timestamptz,     -- when it was last handed to the nodes
  broadcast_at timestamptz, -- when one of them last took it
  mined_block bigint,
  mined_block_hash bytes32,
  succeeded boolean,        -- its receipt's status
  resolved_at timestamptz   -- this nonce is over: this one or another transaction of it is deep enough on chain
);
create unique index transaction_slot on transaction (chain_id, wallet, nonce, max_fee_per_gas);
create index transaction_batch on transaction (batch_id);
create index transaction_open on transaction (chain_id, wallet) where resolved_at is null;

-- A failure that belongs to the payment, as our own simulation or transaction showed it.
create table settlement_failure (
  id bigint generated always as identity primary key,
  payment_id text not null references payment,
  attempt smallint not null,
  batch_id bigint references batch,
  code text not null,   -- insufficient_balance, invalid_signature, authorization_cancelled, authorization_expired, …
  detail text not null default '',
  failed_at timestamptz not null default now(),
  next_attempt_at timestamptz,
  unique (payment_id, attempt)
);

-- When a block reached its network's confirmation depth; joined on the hash, so a reorg takes the row out of use.
create table confirmation (
  chain_id integer not null,
  block_number bigint not null,
  block_hash bytes32 not null,
  confirmed_at timestamptz not null, -- time of the block that gave it its depth
  primary key (chain_id, block_hash)
);

-- USD price of a chain's gas token at a block, as its price feed said there; like the above, of no use after a reorg.
create table gas_token_price (
  chain_id integer not null,
  block_hash bytes32 not null,
  usd numeric(78, 0) not null, -- USDC base units for 10^18 wei
  primary key (chain_id, block_hash)
);

-- The highest block that a decision of ours relied on: an index below it is behind, whatever it says.
create table acted_block (
  chain_id integer primary key,
  block_number bigint not null,
  swept_block bigint not null default 0 -- payments settled up to here are concluded
);

-- Events for providers, written in the transaction that causes them; delivery is another process's work.
create table outbox (
  id bigint generated always as identity primary key,
  event text not null,
  provider_id text not null references provider,
  payment_id text references payment,
  tx_hash bytes32,
  data jsonb not null,
  created_at timestamptz not null default now(),
  dispatched_at timestamptz -- when it was made into deliveries, one a receiver
);
create unique index outbox_once on outbox (event, payment_id, coalesce(tx_hash, '')) where payment_id is not null;

-- Requests counted for rate limits, gathered from the api processes every second. Unlogged: a crash forgives a minute.
create unlogged table request_count (
  key text not null,
  window_start bigint not null, -- Unix seconds
  count bigint not null,
  primary key (window_start, key)
);
