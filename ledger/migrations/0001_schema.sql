-- What we accepted, signed and tried. Whether money moved is never written here: that is a query over what Ponder indexed
-- (ledger/halves.ts).
--
-- Addresses, hashes and nonces are lower-case 0x-hex text, as in Ponder's columns, so that a join converts nothing.
-- Amounts are USDC base units.

create domain usdc_amount as numeric(20, 0) check (value >= 0 and value < 18446744073709551616);
-- Decoding and encoding again gives the same text only for lower-case hex. A regular expression takes 25 times as long.
create domain address as text
  check (octet_length(value) = 42 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);
create domain bytes32 as text
  check (octet_length(value) = 66 and '0x' || encode(decode(substr(value, 3), 'hex'), 'hex') = value);

-- Whether a chain's USDC is worth nothing, as sdk/src/protocol/networks.ts says; ledger/testnets.test.ts compares the two.
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
  submit_granted_at timestamptz, -- since when the operator lets it settle anything through POST /submit, without a fee
  version integer not null default 1, -- goes up with each change; who changes it names the one that they saw
  disabled_at timestamptz,
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

-- Accepted payments --------------------------------------------------------------------------------------------------

-- A verification locks this row, so that parallel requests of one payer are counted one after the other.
create table payer (
  chain_id integer not null,
  token address not null,
  address address not null,
  accepted_total numeric(78, 0) not null default 0, -- of all its payments ever, both halves
  -- Transactions in which a payment of its failed that its simulation had let pass (ledger/quarantine.ts).
  mined_failures smallint not null default 0,
  first_seen_at timestamptz not null default now(),
  primary key (chain_id, token, address)
);

create table payment (
  id text primary key check (octet_length(id) = 36 and 'pay_' || encode(decode(substr(id, 5), 'hex'), 'hex') = id),
  request_id text not null unique -- one challenge buys once
    check (octet_length(request_id) = 36 and 'req_' || encode(decode(substr(request_id, 5), 'hex'), 'hex') = request_id),
  -- gateway: accepted by /verify of the api. facilitator: by x402's /verify or /settle of the keeper. refund: goes back to
  -- the payer of another payment (see refund), and is in no sum of a provider's.
  source text not null default 'gateway' check (source in ('gateway', 'facilitator', 'refund')),
  provider_id text references provider,
  endpoint_id text references endpoint,
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
  payer_has_code boolean not null default false, -- payers with code are settled in batches of their own
  tier text not null,
  effective_rate text not null,
  resource text not null,
  challenged_at timestamptz not null,
  accepted_at timestamptz not null,
  due_at timestamptz,                   -- since when POST /settle waits for it
  attempts smallint not null default 0 check (attempts between 0 and 6),
  first_failed_at timestamptz,
  next_attempt_at timestamptz,
  failed_at timestamptz,                -- retries exhausted or expired; a requeue clears it
  failure_code text,
  voided_at timestamptz,                -- the provider did not serve
  published_at timestamptz,             -- committed before the signatures leave through /settlements/pending
  lookup_requested_at timestamptz,                -- a half is used on chain but not indexed: the evidence loop looks up by whom
  spent_block bigint,                   -- nothing of it was left to settle as of this block; null: something is
  concluded_at timestamptz,             -- both halves are over, and final on chain
  -- Is in an open batch (kept by triggers on batch_item, for the indexes below), or reserved (see facilitation).
  is_claimed boolean not null default false,
  quarantined boolean not null default false, -- is settled apart from the others (ledger/quarantine.ts)
  -- Null: not in the providers' sums. Else what went in, as bits: 1 the provider's half arrived, 2 the fee's, 4 voided.
  summarised smallint check (summarised between 0 and 7),
  settlement_seconds integer,  -- of a summarised one that settled: from its acceptance to its last half's block
  refunded_amount usdc_amount, -- of its refunds, what has moved or still can; null: it has none
  foreign key (chain_id, token, payer) references payer,
  check (voided_at is null or published_at is null),
  check (case source
    when 'gateway' then provider_id is not null and endpoint_id is not null and due_at is null
    else endpoint_id is null and fee_amount = 0
  end),
  check (source <> 'refund' or provider_id is null and due_at is null),
  check (refunded_amount <= provider_amount + fee_amount)
)
-- Three updates a payment, and none of them in place: with Postgres' own 0.2 a fifth of a year would be dead before a vacuum.
with (autovacuum_vacuum_scale_factor = 0.02);

-- The queue is read by indexes alone, so its length makes no difference to how fast a batch is claimed.
create index payment_queue on payment (chain_id, token, fee_recipient, payee, accepted_at)
  where concluded_at is null and failed_at is null and voided_at is null;
create index payment_expiry on payment (chain_id, valid_before)
  where concluded_at is null and failed_at is null and voided_at is null and spent_block is null and not is_claimed;
-- Counts and sums by provider wallet.
create index payment_waiting on payment (chain_id, token, fee_recipient, payee) include (provider_amount, fee_amount)
  where concluded_at is null and failed_at is null and voided_at is null and spent_block is null
    and not is_claimed and next_attempt_at is null
    and not quarantined;
create index payment_oldest on payment (chain_id, token, fee_recipient, accepted_at, id)
  where concluded_at is null and failed_at is null and voided_at is null and spent_block is null
    and not is_claimed and next_attempt_at is null
    and not quarantined;
-- Payers with code are few, and never wait for the others to be read.
create index payment_with_code on payment (chain_id, token, fee_recipient, accepted_at, id)
  where concluded_at is null and failed_at is null and voided_at is null and spent_block is null
    and not is_claimed and next_attempt_at is null
    and not quarantined and payer_has_code;
-- The greatest first. Without micropayments, which no high-value threshold reaches.
create index payment_greatest on payment (chain_id, token, fee_recipient, (provider_amount + fee_amount))
  where concluded_at is null and failed_at is null and voided_at is null and spent_block is null
    and not is_claimed and next_attempt_at is null
    and not quarantined and provider_amount + fee_amount >= 1000000;
-- What a caller of POST /settle waits for: what runs out first goes first.
create index payment_due on payment (chain_id, token, fee_recipient, payer_has_code, valid_before)
  where due_at is not null and concluded_at is null and failed_at is null and voided_at is null and spent_block is null
    and not is_claimed and next_attempt_at is null and not quarantined;
create index payment_quarantined on payment (chain_id, token, fee_recipient, payer, accepted_at)
  where concluded_at is null and failed_at is null and voided_at is null and spent_block is null and not is_claimed and quarantined;
-- Retries and deferred payments, by when they come back.
create index payment_deferred on payment (chain_id, token, fee_recipient, next_attempt_at)
  where concluded_at is null and failed_at is null and voided_at is null and spent_block is null and not is_claimed
    and next_attempt_at is not null;
create index payment_lookup on payment (chain_id, lookup_requested_at) where lookup_requested_at is not null;
-- What the sweep looks at (ledger/conclusions.ts).
create index payment_unconcluded_expiry on payment (chain_id, valid_before)
  where concluded_at is null and not is_claimed and (failed_at is not null or voided_at is not null);
create index payment_spent on payment (chain_id, spent_block) where spent_block is not null;
create index payment_spent_open on payment (chain_id)
  where spent_block is not null and concluded_at is null and failed_at is null;

-- Of payments that came through x402's facilitator: by whom, and how far it was answered.
--
-- POST /verify reserves: it stores the payment as it is, out of everybody's reach (is_claimed, no provider), so that
-- authorization and balance are taken by the same constraints as any other's. POST /settle makes it due, or the
-- reservation lapses and the payment is deleted.
create table facilitation (
  payment_id text primary key references payment on delete cascade,
  provider_id text references provider, -- whose API key came along; null: none did
  payer address not null,
  payment_identifier text check (payment_identifier ~ '^[A-Za-z0-9_-]{16,128}$'),
  fee usdc_amount not null default 0,   -- what the provider owes us for it; charged nowhere
  reserved_until timestamptz,           -- null: POST /settle came
  answered_at timestamptz,              -- when POST /settle said that it is settled: said once
  is_costed boolean not null default false -- its share of a transaction's gas is in facilitator_cost
);
create unique index facilitation_identifier on facilitation (payer, payment_identifier) where payment_identifier is not null;
create index facilitation_open on facilitation (provider_id) where not is_costed;
create index facilitation_reserved on facilitation (reserved_until) where reserved_until is not null;

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

-- Debts that the operator gave up (npx tollkeeper payer forgive).
create table forgiven_debt (
  payment_id text primary key references payment,
  reason text not null check (length(reason) between 1 and 500),
  forgiven_at timestamptz not null default now()
);

-- What a payer owes (ledger/exposure.ts).
create index payment_payer_failed on payment (chain_id, token, payer) where failure_code is not null;
create index payment_payer on payment (chain_id, token, payer, concluded_at);

-- The providers' views.
create index payment_provider on payment (provider_id, accepted_at desc, id desc);
create index payment_payee on payment (chain_id, payee, accepted_at desc);
create index payment_endpoint on payment (endpoint_id, accepted_at desc, id desc);
create index payment_provider_payer on payment (provider_id, payer, accepted_at desc, id desc);
create index payment_provider_voided on payment (provider_id, accepted_at desc, id desc) where voided_at is not null;
create index payment_unconcluded on payment (provider_id, accepted_at desc, id desc) where concluded_at is null;
-- One half arrived, and the other never will.
create index payment_partial on payment (provider_id, accepted_at desc, id desc)
  where summarised in (1, 2, 5, 6) and fee_amount > 0;
create index payment_troubled on payment (provider_id, accepted_at desc, id desc)
  where first_failed_at is not null and (concluded_at is null or failed_at is not null);
create index payment_unsummarised on payment (provider_id, accepted_at) where summarised is null;
create index payment_to_summarise on payment (concluded_at)
  where summarised is null and concluded_at is not null and provider_id is not null;

-- What a payment was presented with: of use only until it is over, so it is deleted some time after (ledger/retention.ts).
-- Apart from the payment, because each update of a row writes all of it.
create table presentation (
  payment_id text primary key references payment on delete cascade,
  request_hash bytea not null, -- SHA-256 of the request: same key and same hash are accepted again
  idempotency_key text,
  released_at timestamptz,     -- it ended without a verdict: one later presentation may take the payment over
  signature bytea not null check (length(signature) between 65 and 1024), -- of the authorization of half 0
  fee_signature bytea check (length(fee_signature) between 65 and 1024)   -- of half 1
);

-- One row an authorization. The unique key refuses a replay, whatever the code does.
create table signed_authorization (
  payment_id text not null references payment on delete cascade,
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
  primary key (payment_id, half),
  unique (chain_id, token, authorizer, nonce)
);

-- Splitters that payments were accepted for, and their terms. What they hold is the chain's to say (ledger/sweeps.ts).
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

-- What settling cost by UTC day, USDC base units: the budget of the operator's keepers.
create table gas_cost (
  chain_id integer not null,
  day date not null,
  cost numeric(78, 0) not null,
  primary key (chain_id, day)
);

-- What the facilitator's payments cost of it, by whose API key came along (null: all callers without one).
create table facilitator_cost (
  provider_id text references provider,
  day date not null,
  cost numeric(78, 0) not null,
  unique nulls not distinct (provider_id, day)
);

-- Why batches of a network wait beyond what may be spent on gas (keeper/settler/ceiling.ts); over once it is past.
create table settlement_hold (
  chain_id integer not null,
  is_high_value boolean not null,
  reason text not null check (reason in ('gas_price', 'gas_cost', 'gas_budget')),
  held_until timestamptz not null,
  primary key (chain_id, is_high_value)
);

create table batch (
  id bigint generated always as identity primary key,
  batch_id bytes32 not null unique, -- random; what BatchSettled carries
  chain_id integer not null,
  token address not null,
  fee_recipient address not null,
  trigger text not null check (trigger in ('amount', 'count', 'time', 'high_value', 'expiry', 'direct')),
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

-- What POST /submit was asked to settle, kept until a wallet takes it.
create table submission (
  id bigint generated always as identity primary key,
  key bytes32 not null unique, -- hash of the authorizations: the same ones again are the same submission
  chain_id integer not null,
  token address not null,
  created_at timestamptz not null default now(),
  batch_id bigint references batch, -- null while it waits
  failure_code text,                -- why it was given up; asking again revives it
  report jsonb                      -- which of its transfers are to blame (ledger/transferReports.ts)
);
create index submission_batch on submission (batch_id) where batch_id is not null;
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

create table batch_item (
  batch_id bigint not null references batch on delete cascade,
  position integer not null, -- most urgent first
  payment_id text references payment,
  transfer_id bigint references transfer,
  active boolean not null default true, -- until the batch is over for it; where it settled, until that is final
  provider_outcome smallint,            -- the contract's digits, from our own transaction
  fee_outcome smallint,
  primary key (batch_id, position),
  check ((payment_id is null) <> (transfer_id is null))
);
create unique index batch_item_active on batch_item (payment_id) where active; -- one open batch a payment
create unique index batch_item_transfer_active on batch_item (transfer_id) where active;
create index batch_item_payment on batch_item (payment_id);
create index batch_item_transfer on batch_item (transfer_id);

-- payment.is_claimed follows batch_item.active. An array is looked up by key: of a join with a transition table, whose size
-- Postgres doesn't know, it may read all payments.
create function claim_payments() returns trigger language plpgsql as $$
begin
  update payment set is_claimed = true
  where id = any (array(select payment_id from changed where active and payment_id is not null)) and not is_claimed;
  return null;
end
$$;

create function release_payments() returns trigger language plpgsql as $$
begin
  update payment set is_claimed = false
  where id = any (array(select payment_id from changed where not active and payment_id is not null)) and is_claimed
    and not exists (select from batch_item i where i.payment_id = payment.id and i.active);
  return null;
end
$$;

create function release_deleted_payments() returns trigger language plpgsql as $$
begin
  update payment set is_claimed = false
  where id = any (array(select payment_id from changed where payment_id is not null)) and is_claimed
    and not exists (select from batch_item i where i.payment_id = payment.id and i.active);
  return null;
end
$$;

create trigger batch_item_claims after insert on batch_item
  referencing new table as changed for each statement execute function claim_payments();
create trigger batch_item_releases after update on batch_item
  referencing new table as changed for each statement execute function release_payments();
create trigger batch_item_deleted after delete on batch_item
  referencing old table as changed for each statement execute function release_deleted_payments();

-- Takes the oldest submission that waits as a batch of its own. A function, so that a claim is one call and no lock of it
-- outlives it, whatever becomes of the caller's host. Returns no row where none waits, the lease is lost, or somebody is
-- just now writing to one of its payments.
create function claim_submission(
  of_chain integer, by_wallet text, by_holder text, by_fence bigint, usdc text, new_batch_id text
) returns setof batch language plpgsql as $$
declare
  waiting bigint;
  made bigint;
begin
  perform from wallet_lease
    where chain_id = of_chain and address = by_wallet and holder = by_holder and fence = by_fence
      and expires_at > clock_timestamp()
    for share;
  if not found then return; end if;
  select id into waiting from submission
    where chain_id = of_chain and token = usdc and batch_id is null and failure_code is null
    order by id limit 1 for update skip locked;
  if waiting is null then return; end if;
  perform from payment where id in (select payment_id from submission_payment where submission_id = waiting)
    order by id for update nowait;

  -- Voided since it was asked for: nobody was told yet that it is settled.
  if exists (
    select from submission_payment s join payment p on p.id = s.payment_id
    where s.submission_id = waiting and p.voided_at is not null
  ) then
    update submission set failure_code = 'payment_voided' where id = waiting;
    return;
  end if;
  -- Its payer lied to simulations before (ledger/quarantine.ts).
  if exists (
    select from payer
    where chain_id = of_chain and token = usdc and mined_failures >= 2 and address in (
      select p.payer from submission_payment s join payment p on p.id = s.payment_id where s.submission_id = waiting
      union all
      select authorizer from transfer where submission_id = waiting
    )
  ) then
    update submission set failure_code = 'invalid_signature' where id = waiting;
    return;
  end if;

  -- One batch has one fee recipient: a fee that goes to another one is settled as a transfer of its own.
  insert into batch (batch_id, chain_id, token, fee_recipient, trigger, wallet, fence)
  select new_batch_id, of_chain, usdc, coalesce(
      (select p.fee_recipient from submission_payment s join payment p on p.id = s.payment_id
        where s.submission_id = waiting order by p.accepted_at, p.id limit 1),
      (select f.recipient from transfer t join transfer f on f.fee_of = t.id
        where t.submission_id = waiting and t.fee_of is null order by t.id limit 1),
      by_wallet
    ), 'direct', by_wallet, by_fence
  returning id into made;
  insert into batch_item (batch_id, position, payment_id, transfer_id)
  select made, row_number() over (order by free.transfer_id nulls first, free.accepted_at, free.payment_id) - 1,
    free.payment_id, free.transfer_id
  from (
    select p.id as payment_id, null::bigint as transfer_id, p.accepted_at
    from submission_payment s join payment p on p.id = s.payment_id
    where s.submission_id = waiting and not p.is_claimed
    union all
    select null, t.id, null from transfer t
    where t.submission_id = waiting and t.fee_of is null
      and not exists (select from batch_item i where i.transfer_id = t.id and i.active)
  ) free;
  if found then
    update submission set batch_id = made where id = waiting;
    return query select * from batch where id = made;
    return;
  end if;
  -- All of it is under way in another batch, or over.
  delete from batch where id = made;
  select i.batch_id into made
  from batch_item i
  where i.active and (
    i.payment_id in (select payment_id from submission_payment where submission_id = waiting)
    or i.transfer_id in (select id from transfer where submission_id = waiting)
  )
  order by i.batch_id limit 1;
  update submission
    set batch_id = made, failure_code = case when made is null then 'authorization_used' end
    where id = waiting;
exception
  when lock_not_available then return;
end
$$;

-- Every signed transaction, committed before its broadcast: first sends, replacements, cancellations.
create table transaction (
  hash bytes32 primary key,
  batch_id bigint not null references batch,
  chain_id integer not null,
  wallet address not null,
  nonce bigint not null,
  kind text not null check (kind in ('settle', 'replacement', 'cancellation')),
  raw bytea,                -- null: deleted, some time after it was over (ledger/retention.ts)
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
  payment_id text not null references payment,
  attempt smallint not null,
  batch_id bigint references batch,
  code text not null,   -- insufficient_balance, invalid_signature, authorization_cancelled, authorization_expired, …
  detail text not null default '',
  failed_at timestamptz not null default now(),
  next_attempt_at timestamptz,
  unique (payment_id, attempt)
);

-- Copies of what the chain says --------------------------------------------------------------------------------------

-- A use or cancellation that the index doesn't show, or not yet: from the receipt of a transaction of ours, or found on
-- chain by its (authorizer, nonce) topics. Dropped when its block is no longer canonical, or the index shows it.
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
  is_final boolean not null default false, -- too deep for a reorg: not checked again
  primary key (chain_id, token, authorizer, nonce),
  check (state = 'cancelled' or (recipient is not null and value is not null))
);
create index evidence_unconfirmed on evidence (chain_id, token, block_number) where not is_final;
create index evidence_transaction on evidence (tx_hash);
create index evidence_recipient on evidence (recipient, chain_id);
create index evidence_block on evidence (chain_id, block_number);

-- When a block got its network's confirmation depth. Joined on the hash, so after a reorg the row counts for nothing.
create table confirmation (
  chain_id integer not null,
  block_number bigint not null,
  block_hash bytes32 not null,
  confirmed_at timestamptz not null, -- time of the block that gave it its depth
  -- The number first, which the hash implies: what is read of one time stands side by side.
  primary key (chain_id, block_number, block_hash) include (confirmed_at)
);

-- USD price of a chain's gas token at a block, from its price feed. Joined on the hash, as above.
create table gas_token_price (
  chain_id integer not null,
  block_hash bytes32 not null,
  usd numeric(78, 0) not null, -- USDC base units for 10^18 wei
  primary key (chain_id, block_hash)
);

-- How far the chain's blocks were acted on.
create table acted_block (
  chain_id integer primary key,
  block_number bigint not null,             -- the highest one that a decision relied on: an index below it is behind
  swept_block bigint not null default 0,    -- uses and cancellations up to here were looked at
  notified_block bigint not null default 0  -- providers were told of settlements up to here
);

-- Blocks of which the index lacked something when they were acted on: once it has it, they are acted on again.
create table index_hole (
  chain_id integer not null,
  block_number bigint not null,
  primary key (chain_id, block_number)
);

-- Messages to providers ----------------------------------------------------------------------------------------------

-- What providers were told last about the chain, so that a reorg can be told, too, and nothing is told twice. Whether it
-- is still true is the index's to say.
create table payment_notification (
  payment_id text primary key references payment on delete cascade,
  chain_id integer not null,
  provider_tx bytes32 not null,
  fee_tx bytes32,
  block_number bigint not null, -- of the later half
  is_settled boolean not null default true, -- false: it was taken back
  occurrence integer not null default 1 -- how often its provider was told that it settled
);
create index payment_notification_young on payment_notification (chain_id, block_number) where is_settled;

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
-- indexed chain at each question, so a reorg shows at once. A payment that is opened again (after a reorg deeper than
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

-- What one payment adds to the sums, given payment.summarised. Returns a table (of one row) so that Postgres inlines it.
create function revenue_share(net numeric, platform_fee numeric, bits integer)
returns table (is_voided boolean, payments integer, voided_payments integer, settled_payments integer,
  failed_payments integer, gross numeric, fee numeric, settled_net numeric, settled_fee numeric, failed_net numeric)
language sql immutable as $$
  select (bits & 5) = 4,
    case when (bits & 5) = 4 then 0 else 1 end,
    case when (bits & 5) = 4 then 1 else 0 end,
    bits & 1,
    case when (bits & 5) = 0 then 1 else 0 end,
    case when (bits & 5) = 4 then 0 else net + platform_fee end,
    case when (bits & 5) = 4 then 0 else platform_fee end,
    case when (bits & 1) = 1 then net else 0 end,
    case when (bits & 2) = 2 then platform_fee else 0 end,
    case when (bits & 5) = 0 then net else 0 end
$$;

create function leave_revenue() returns trigger language plpgsql as $$
declare
  share record;
begin
  select * into share from revenue_share(old.provider_amount, old.fee_amount, old.summarised);
  update revenue r set
    payments = r.payments - share.payments,
    voided_payments = r.voided_payments - share.voided_payments,
    settled_payments = r.settled_payments - share.settled_payments,
    failed_payments = r.failed_payments - share.failed_payments,
    gross = r.gross - share.gross,
    fee = r.fee - share.fee,
    settled_net = r.settled_net - share.settled_net,
    settled_fee = r.settled_fee - share.settled_fee,
    failed_net = r.failed_net - share.failed_net
  where r.provider_id = old.provider_id and r.starts_at = date_trunc(r.period, old.accepted_at, 'UTC')
    and r.period in ('hour', 'day', 'month')
    and r.starts_at in (date_trunc('hour', old.accepted_at, 'UTC'), date_trunc('day', old.accepted_at, 'UTC'),
      date_trunc('month', old.accepted_at, 'UTC'))
    and r.endpoint_id is not distinct from old.endpoint_id and r.chain_id = old.chain_id and r.payee = old.payee;
  update payer_revenue r set
    payments = r.payments - share.payments,
    gross = r.gross - share.gross,
    settled_net = r.settled_net - share.settled_net
  where r.provider_id = old.provider_id and r.chain_id = old.chain_id and r.payer = old.payer
    and (r.period, r.starts_at) in (('all', 'epoch'), ('month', date_trunc('month', old.accepted_at, 'UTC')),
      ('day', date_trunc('day', old.accepted_at, 'UTC')));
  update settlement_time t set payments = t.payments - 1
  where t.chain_id = old.chain_id and t.day = (old.accepted_at at time zone 'UTC')::date
    and t.bucket = settlement_bucket(old.settlement_seconds);
  new.summarised := null;
  new.settlement_seconds := null;
  return new;
end
$$;

create trigger payment_leaves_revenue before update of concluded_at on payment for each row
  when (old.concluded_at is not null and new.concluded_at is null and old.summarised is not null)
  execute function leave_revenue();

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
-- client holds its locks (ledger/acceptPayments.ts).
--
-- Concurrent calls can't deadlock: payers are locked first, in order, and payments are inserted in order of request_id.
--
-- Returns only the refused ones: 'over_limit', or 'replayed' (its challenge, payment identifier or an authorization is
-- already stored).
--
-- Arrays of rows, since looking up the fields of JSON by name took longer than all checks of a payment together.
create type candidate as (
  id text, request_id text, source text, provider_id text, endpoint_id text, chain_id integer, token text, payer text,
  payer_limit numeric, payer_has_code boolean, payee text, fee_recipient text, splitter text, price numeric,
  provider_amount numeric, fee_amount numeric, valid_before bigint, tier text, effective_rate text, resource text,
  idempotency_key text, request_hash text, challenged_at float8, accepted_at float8, due_at float8,
  authorizations smallint, -- how many it has
  facilitation json
);
create type candidate_authorization as (
  payment_id text, half smallint, recipient text, value numeric, valid_after bigint, valid_before bigint, nonce text,
  signature text, accepted_block bigint
);
create function accept_payments(candidates candidate[], authorizations candidate_authorization[])
returns table (refused_id text, reason text) language plpgsql as $$
declare
  candidate candidate;
  over_limit text[] := '{}';
  replayed text[];
  has_facilitation boolean := false;
  has_splitter boolean := false;
begin
  for candidate in select * from unnest(candidates) as c order by c.chain_id, c.token, c.payer
  loop
    insert into payer as p (chain_id, token, address, accepted_total)
    select candidate.chain_id, candidate.token, candidate.payer, candidate.provider_amount + candidate.fee_amount
    where candidate.payer_limit is null or candidate.provider_amount + candidate.fee_amount <= candidate.payer_limit
    on conflict (chain_id, token, address) do update
      set accepted_total = p.accepted_total + excluded.accepted_total
      where candidate.payer_limit is null or p.accepted_total + excluded.accepted_total <= candidate.payer_limit;
    if not found then over_limit := over_limit || candidate.id; end if;
    has_facilitation := has_facilitation or candidate.facilitation is not null;
    has_splitter := has_splitter or candidate.splitter is not null;
  end loop;

  with inserted as (
    insert into payment (id, request_id, provider_id, endpoint_id, chain_id, token, payer, payer_has_code, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier, effective_rate, resource,
      challenged_at, accepted_at, source, due_at, is_claimed)
    select id, request_id, provider_id, endpoint_id, chain_id, token, payer, payer_has_code, payee,
      fee_recipient, splitter, provider_amount, fee_amount, valid_before, price, tier,
      effective_rate, resource, to_timestamp(challenged_at / 1000), to_timestamp(accepted_at / 1000),
      source, to_timestamp(due_at / 1000),
      facilitation is not null and due_at is null
    from unnest(candidates) as c
    where id <> all (over_limit)
    order by request_id
    on conflict do nothing
    returning id, chain_id, token, payer
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
    on conflict do nothing
    returning payment_id
  )
  select array_agg(c.id) into replayed
  from unnest(candidates) as c
  left join (select payment_id, count(*) from signed group by payment_id) s on s.payment_id = c.id
  where c.id <> all (over_limit) and coalesce(s.count, 0) < c.authorizations;

  if has_facilitation then
    with facilitated as (
      insert into facilitation (payment_id, provider_id, payer, payment_identifier, fee, reserved_until)
      select c.id, given.provider_id, c.payer, given.payment_identifier, given.fee, to_timestamp(given.reserved_until / 1000)
      from unnest(candidates) as c
      cross join lateral json_to_record(c.facilitation) as given (provider_id text, payment_identifier text, fee numeric,
        reserved_until float8)
      where c.facilitation is not null and c.id <> all (over_limit) and c.id <> all (coalesce(replayed, '{}'))
      on conflict do nothing
      returning payment_id
    )
    select replayed || array_agg(c.id) into replayed
    from unnest(candidates) as c
    where c.facilitation is not null and c.id <> all (over_limit) and c.id <> all (coalesce(replayed, '{}')) and (
      not exists (select from facilitated where payment_id = c.id)
      -- POST /submit is settling it.
      or exists (
        select from unnest(accept_payments.authorizations) as a
        join transfer t on t.chain_id = c.chain_id and t.token = c.token and t.authorizer = c.payer and t.nonce = a.nonce
        join submission s on s.id = t.submission_id and s.failure_code is null
        where a.payment_id = c.id
      )
    );
  end if;

  if replayed is not null then
    -- Where only the authorization was known, the payment itself was inserted.
    delete from payment where id = any (replayed);
    update payer p set accepted_total = p.accepted_total - taken.total
    from (
      select c.chain_id, c.token, c.payer, sum(c.provider_amount + c.fee_amount) as total
      from unnest(candidates) as c
      where c.id = any (replayed)
      group by 1, 2, 3
    ) taken
    where p.chain_id = taken.chain_id and p.token = taken.token and p.address = taken.payer;
  end if;

  if has_splitter then
    -- In order, so that concurrent calls can't deadlock; whoever comes later finds them.
    insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
    select distinct on (c.chain_id, c.token, c.splitter) c.chain_id, c.token, c.splitter, c.payee, c.fee_recipient,
      c.provider_amount / gcd(c.provider_amount, c.fee_amount), c.fee_amount / gcd(c.provider_amount, c.fee_amount)
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
    select unnest(replayed), 'replayed';
end
$$;

