-- Intent only: what was accepted, what was signed, what was tried. Whether money moved is never written here;
-- it is a query over what Ponder indexed (store/halves.ts). Addresses, hashes and nonces are lower-case 0x-hex text,
-- the same form as Ponder's columns, so that the join needs no conversion. Amounts are USDC base units.

create domain usdc_amount as numeric(20, 0) check (value >= 0 and value < 18446744073709551616);
create domain address as text check (value ~ '^0x[0-9a-f]{40}$');
create domain bytes32 as text check (value ~ '^0x[0-9a-f]{64}$');

-- Registry -----------------------------------------------------------------------------------------------------------

create table provider (
  id text primary key check (id ~ '^prov_[0-9a-f]{32}$'),
  name text not null check (length(name) between 1 and 200),
  contact text,
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
  first_seen_at timestamptz not null default now(),
  primary key (chain_id, token, address)
);

create table payment (
  id text primary key check (id ~ '^pay_[0-9a-f]{32}$'),
  request_id text not null unique check (request_id ~ '^req_[0-9a-f]{32}$'), -- one challenge buys once
  provider_id text not null references provider,
  endpoint_id text not null references endpoint,
  chain_id integer not null,
  token address not null,
  payer address not null,
  payee address not null,         -- provider wallet as signed
  fee_recipient address not null, -- platform wallet as signed
  price usdc_amount not null,     -- what the challenge asked for, provider's part and fee together
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
  foreign key (chain_id, token, payer) references payer,
  check (voided_at is null or published_at is null)
);
create index payment_provider on payment (provider_id, accepted_at desc, id desc);
create index payment_payee on payment (chain_id, payee, accepted_at desc);
create index payment_payer on payment (chain_id, token, payer, accepted_at desc);

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
create index signed_authorization_open on signed_authorization (chain_id, token, authorizer, valid_before);

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
  primary key (chain_id, token, authorizer, nonce),
  check (state = 'cancelled' or (recipient is not null and value is not null))
);

-- Settlement attempts ------------------------------------------------------------------------------------------------

create table wallet_lease (
  chain_id integer not null,
  address address not null,
  holder text not null,
  fence bigint not null default 1, -- grows with every new holder; every write of a holder names the one it was given
  expires_at timestamptz not null,
  paused_reason text,
  primary key (chain_id, address)
);

create table batch (
  id bigint generated always as identity primary key,
  batch_id bytes32 not null unique, -- the random id that goes on chain
  chain_id integer not null,
  token address not null,
  fee_recipient address not null,
  trigger text not null check (trigger in ('amount', 'count', 'time', 'high_value', 'expiry', 'direct')),
  wallet address not null,
  fence bigint not null,
  state text not null default 'claimed' check (state in ('claimed', 'broadcast', 'mined', 'closed')),
  outcome text check (outcome in ('settled', 'nothing_left', 'released', 'lost', 'handed_over')), -- why it was closed
  created_at timestamptz not null default now(),
  closed_at timestamptz,
  check ((state = 'closed') = (closed_at is not null)),
  check ((state = 'closed') = (outcome is not null))
);
create index batch_open on batch (chain_id, wallet) where state <> 'closed';

create table batch_item (
  batch_id bigint not null references batch on delete cascade,
  payment_id text not null references payment,
  position integer not null, -- its place in the calldata
  active boolean not null default true,
  outcome smallint,          -- the contract's byte, as our own transaction reported it
  primary key (batch_id, payment_id)
);
create unique index batch_item_active on batch_item (payment_id) where active; -- one open batch a payment
create index batch_item_payment on batch_item (payment_id);

-- Every signed transaction, stored and committed before its broadcast: first sends, replacements, cancellations.
create table transaction (
  hash bytes32 primary key,
  batch_id bigint references batch, -- null: a cancellation that belongs to no batch
  chain_id integer not null,
  wallet address not null,
  nonce bigint not null,
  kind text not null check (kind in ('settle', 'replacement', 'cancellation')),
  raw bytea not null,
  gas bigint not null,
  max_fee_per_gas numeric(78, 0) not null,
  max_priority_fee_per_gas numeric(78, 0) not null,
  created_at timestamptz not null default now(),
  broadcast_at timestamptz,
  mined_block bigint,
  mined_block_hash bytes32,
  resolved_at timestamptz -- this nonce is over: this one or another transaction of it was mined
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

-- The highest block that a decision of ours relied on: an index below it is behind, whatever it says.
create table acted_block (
  chain_id integer primary key,
  block_number bigint not null
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
  delivered_at timestamptz
);
create unique index outbox_once on outbox (event, payment_id, coalesce(tx_hash, '')) where payment_id is not null;
