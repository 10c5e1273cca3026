-- The tab store: what buyers bought on tabs that are open, request by request (docs/tabs.md). It may be a database of its own, on
-- Citus too: every table is keyed by payer first, no statement joins it with anything else, and a statement asks for one payer
-- (but for those that look for tabs to close). It runs on Postgres 15 and later.
--
-- Keys are bytes: a request is written once and its key twice, so text would double what it writes to the log.
-- Amounts are USDC base units.
--
-- Functions are in packages/ledger/tabs/functions, one file each. The migrator loads them after the migrations.

create table tabs.tab (
  payer bytea not null check (length(payer) = 20),
  id bytea not null check (length(id) = 16),
  chain_id integer not null,
  token bytea not null check (length(token) = 20),
  contract bytea not null check (length(contract) = 20),
  platform bytea not null check (length(platform) = 20),
  reward_share integer not null check (reward_share between 0 and 10000),
  nonce bytea not null check (length(nonce) = 32),
  expires_at bigint not null, -- as signed, Unix seconds
  has_code boolean not null,
  payment_id text not null,   -- of the payment as which it will be taken into the ledger
  opened_at timestamptz not null,
  last_signature bytea,       -- of the state with which its buyer closed it; every other state is a request's
  closed_at timestamptz,
  close_reason text,
  taken_at timestamptz,       -- since when the ledger has it, or it ended without a payment
  -- Of a closed tab that could not be taken in: when to try again, and how often it has failed. Other tabs pass it meanwhile.
  retry_at timestamptz,
  retries smallint not null default 0,
  -- It was taken in as a payment, and the end of that isn't final. Then its buyer is credited with what moved beyond what was charged.
  -- Not earlier, because until then the buyer hasn't paid it: a buyer who signed far more than was charged, and emptied the wallet, was
  -- served for all of that.
  awaits_end boolean not null default false,
  reserved bigint not null,   -- credit that the ledger reserved for it
  lent bigint not null,       -- the part of it beyond what its payer has earned
  credit bigint,              -- what its payer may owe on all tabs, as of the latest reservation; null: nothing limits it
  -- From here on is what each request changes: the log holds a row's changed bytes, from the first one to the last.
  used_at timestamptz not null, -- of its latest request
  requests integer not null default 0,
  sequence bigint not null default 0, -- of the newest state
  charged bigint[] not null default '{}', -- an amount a line; below 0: so much of the line's credit isn't used
  signed bigint[],            -- by the newest state; null: just what is charged
  reduced bigint[],           -- how much less than the prices was charged, an amount a line; null: nothing
  check ((closed_at is null) = (close_reason is null)),
  check (taken_at is null or closed_at is not null),
  primary key (payer, id)
)
-- Each request updates its row in place, so no index has a column that a request changes.
with (fillfactor = 50);
create index tab_id on tabs.tab (id);
create index tab_payment on tabs.tab (payment_id);
create index tab_open on tabs.tab ((payer || id)) where closed_at is null;
create index tab_taken on tabs.tab (taken_at) where taken_at is not null;
create index tab_closed on tabs.tab (coalesce(retry_at, closed_at)) where closed_at is not null and taken_at is null;
create index tab_awaits_end on tabs.tab ((payer || id)) where awaits_end;

-- Whom its lines pay, in the order in which they came: never changed, only added to.
create table tabs.line (
  payer bytea not null,
  tab_id bytea not null,
  position smallint not null,
  split bytea not null check (length(split) = 32),
  credit bigint not null default 0, -- what its buyer was charged too much on earlier tabs: the first purchases use it up
  primary key (payer, tab_id, position)
);

-- What is bought on it: an endpoint on a line.
create table tabs.item (
  payer bytea not null,
  tab_id bytea not null,
  number smallint not null,
  position smallint not null,
  provider_id text not null,
  endpoint_id text not null,
  primary key (payer, tab_id, number)
);

-- One row a request. The key refuses a second request by one state, whatever the code does.
create table tabs.request (
  price bigint not null,
  charged bigint,              -- null: the price
  line_total bigint not null,  -- charged on its line with it, when it was accepted
  accepted_at timestamptz not null,
  sequence bigint not null,
  item smallint not null,
  payer bytea not null,
  tab_id bytea not null,
  request_hash bytea not null check (length(request_hash) = 16),
  signature bytea not null check (length(signature) between 65 and 1024),
  -- How much less than the prices was charged on its line when it was accepted; null: nothing. Receipts state it, so that their
  -- holder can compute what the line's other requests still need (docs/tabs.md): requests that ran at the same time were counted
  -- at their full prices in each other's line totals.
  line_reduced bigint,
  check (charged between 0 and price),
  primary key (payer, tab_id, sequence)
);

-- What a buyer paid and wasn't charged: the payer's next tab with a line of this split begins with it, and what is left of it then returns
-- here when that tab ends, however it ends.
create table tabs.credit (
  payer bytea not null,
  chain_id integer not null,
  split bytea not null,
  amount bigint not null check (amount > 0),
  primary key (payer, chain_id, split)
);

-- A number that each round of upkeep raises, first here and then in the ledger. If the ledger's is higher, this store was restored from an
-- earlier time than the ledger, or is another one (packages/ledger/tabs/storeMark.ts). At most one row. On Citus it stays on the coordinator.
create table tabs.mark (
  is_only boolean primary key default true check (is_only),
  number bigint not null check (number > 0)
);

-- Arguments and results of functions. None of them is a row type of a table: a function that needs one can't be created on the
-- workers of a cluster before that table is distributed.

-- A request that passed every check but those that need its tab's row.
create type tabs.candidate as (
  payer bytea, tab_id bytea, chain_id integer, token bytea, contract bytea, platform bytea, reward_share integer, nonce bytea,
  expires_at bigint, has_code boolean, payment_id text,
  reserved bigint, -- in all for this tab; null: nothing new was reserved
  lent bigint, payer_credit bigint, -- with it: the part that is lent, and what the payer may owe on all tabs
  sequence bigint, amounts bigint[], signature bytea, request_hash bytea,
  position integer, price bigint, provider_id text, endpoint_id text,
  splits bytea[], -- of the lines from `known` on
  known integer
);
-- What the judgments and the write need of a tab.
create type tabs.tab_state as (
  payment_id text, chain_id integer, token bytea, contract bytea, platform bytea, reward_share integer, expires_at bigint,
  closed_at timestamptz, used_at timestamptz, reserved bigint, requests integer, sequence bigint, charged bigint[], signed bigint[],
  reduced bigint[]
);
-- Whether amounts cover a request, and those with which it leaves its tab: an amount a line, and the total charged.
create type tabs.judgment as (verdict text, charged bigint[], signed bigint[], total bigint);
create type tabs.verdict as (
  verdict text, payment_id text, line_total bigint, accepted_at float8, known integer, requests integer, charged bigint,
  credit bigint, -- that the request's line began with, where this request opened it
  line_reduced bigint,
  payer_credit bigint -- what the tab's payer may owe on all tabs; null: nothing limits it
);
