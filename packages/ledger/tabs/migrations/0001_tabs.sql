-- The tab store: open tabs, with each request that was bought on them (docs/tabs.md). It may be a separate database, also on Citus. So no statement
-- joins it with the ledger, all keys start with the payer, and each statement concerns one payer, except the statements that search for tabs. It runs
-- on Postgres 15 and later.
--
-- Keys are bytes: each request writes one row, with its key written twice, so text would double the volume of the WAL. Amounts are USDC
-- base units.
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
  payment_id text not null,   -- id of the payment that it becomes in the ledger
  opened_at timestamptz not null,
  last_signature bytea,       -- signature of the state with which its buyer closed it; the signatures of other states are in tabs.request
  closed_at timestamptz,
  close_reason text,
  taken_at timestamptz,       -- when the ledger imported it, or when it ended without a payment
  -- For a closed tab that could not be imported: when to retry, and the number of failures. Other tabs come first until then.
  retry_at timestamptz,
  retries smallint not null default 0,
  -- True after the ledger imported it as a payment, until that payment's result is final. The buyer is then credited with the amount that
  -- moved beyond the charged amount. Crediting earlier would be unsafe, because the buyer hasn't paid yet: a buyer who signed far more than
  -- was charged and then emptied the wallet would be served for the difference.
  awaits_end boolean not null default false,
  reserved bigint not null,   -- credit that is reserved for it in the ledger
  lent bigint not null,       -- the part of `reserved` that exceeds the payer's earned credit
  credit bigint,              -- the maximum that its payer may owe on all tabs, at the latest reservation; null: unlimited
  -- The columns from here on change with each request. They are last, because the WAL contains a row's bytes from the first changed one to
  -- the last.
  used_at timestamptz not null, -- time of its latest request
  requests integer not null default 0,
  sequence bigint not null default 0, -- number of the newest state
  charged bigint[] not null default '{}', -- one amount per line; negative: the unused part of the line's credit
  signed bigint[],            -- amounts that the newest state signs; null: equal to `charged`
  reduced bigint[],           -- reductions from the prices, one amount per line; null: none
  -- Three numbers per item, in the order of item.number: the number of charged requests, their total, and the time of the latest one in
  -- Unix milliseconds. Lists of tabs read them here, because a tab may have 50,000 requests.
  bought bigint[] not null default '{}',
  check ((closed_at is null) = (close_reason is null)),
  check (taken_at is null or closed_at is not null),
  primary key (payer, id)
)
-- Each request updates its row in place (HOT), so no index may contain a column that a request changes.
with (fillfactor = 50);
create index tab_id on tabs.tab (id);
create index tab_payment on tabs.tab (payment_id);
create index tab_open on tabs.tab ((payer || id)) where closed_at is null;
create index tab_taken on tabs.tab (taken_at) where taken_at is not null;
create index tab_closed on tabs.tab (coalesce(retry_at, closed_at)) where closed_at is not null and taken_at is null;
create index tab_awaits_end on tabs.tab ((payer || id)) where awaits_end;

-- The lines of each tab, with their recipients, in the order in which they were added. Rows are only added, never changed.
create table tabs.line (
  payer bytea not null,
  tab_id bytea not null,
  position smallint not null,
  split bytea not null check (length(split) = 32),
  credit bigint not null default 0, -- amount that its buyer overpaid on earlier tabs; the first purchases use it up
  primary key (payer, tab_id, position)
);

-- An endpoint from which something was bought on a line.
create table tabs.item (
  payer bytea not null,
  tab_id bytea not null,
  number smallint not null,
  position smallint not null,
  provider_id text not null,
  endpoint_id text not null,
  opened_at timestamptz not null,          -- copied from its tab, to the millisecond, for the index
  is_taken boolean not null default false, -- the ledger has imported the tab, or the tab ended without a payment
  primary key (payer, tab_id, number)
);
-- A provider's tabs that the ledger hasn't imported yet. They are few compared with the tabs that are kept for their receipts.
create index tab_item_current on tabs.item (provider_id, opened_at, payer, tab_id) where not is_taken;

-- One row per request. The key rejects a second request with the same state, even if the code has a bug.
create table tabs.request (
  price bigint not null,
  charged bigint,              -- null: the price
  line_total bigint not null,  -- total charged on its line when it was accepted, including this request
  accepted_at timestamptz not null,
  sequence bigint not null,
  item smallint not null,
  payer bytea not null,
  tab_id bytea not null,
  request_hash bytea not null check (length(request_hash) = 16),
  signature bytea not null check (length(signature) between 65 and 1024),
  -- The total by which requests on its line were charged less than their prices, when this request was accepted; null: 0. Receipts state this total,
  -- because concurrent requests count each other at full price in their line totals. It lets an auditor compute the amount that the line must settle
  -- (docs/tabs.md).
  line_reduced bigint,
  check (charged between 0 and price),
  primary key (payer, tab_id, sequence)
);

-- The amount that a buyer paid beyond its charges. The line with this split on the payer's next tab starts with this credit. When that tab ends, for
-- any reason, the unused part returns here.
create table tabs.credit (
  payer bytea not null,
  chain_id integer not null,
  split bytea not null,
  amount bigint not null check (amount > 0),
  primary key (payer, chain_id, split)
);

-- A number that each upkeep run increases, first here and then in the ledger. If the ledger's mark is higher, this store was restored from an
-- earlier time than the ledger, or is a different store (packages/ledger/tabs/storeMark.ts). At most one row. On Citus it stays on the
-- coordinator.
create table tabs.mark (
  is_only boolean primary key default true check (is_only),
  number bigint not null check (number > 0)
);

-- Arguments and results of functions. They are never row types of tables, because a function that needs such a type can't be created on the
-- workers of a cluster before the table is distributed.

-- A request that passed all checks except those that need its tab's row.
create type tabs.candidate as (
  payer bytea, tab_id bytea, chain_id integer, token bytea, contract bytea, platform bytea, reward_share integer, nonce bytea,
  expires_at bigint, has_code boolean, payment_id text,
  reserved bigint, -- total reserved for this tab; null: nothing new was reserved
  lent bigint, payer_credit bigint, -- set with `reserved`: the lent part of `reserved`, and the maximum that the payer may owe on all tabs
  sequence bigint, amounts bigint[], signature bytea, request_hash bytea,
  position integer, price bigint, provider_id text, endpoint_id text,
  splits bytea[], -- splits of the lines after the first `known` lines
  known integer
);
-- The columns of a tab that the judgments and the write need.
create type tabs.tab_state as (
  payment_id text, chain_id integer, token bytea, contract bytea, platform bytea, reward_share integer, expires_at bigint,
  closed_at timestamptz, used_at timestamptz, reserved bigint, requests integer, sequence bigint, charged bigint[], signed bigint[],
  reduced bigint[], bought bigint[]
);
-- Whether the signed amounts cover a request, and the tab's amounts after it: one amount per line, and the total charged.
create type tabs.judgment as (verdict text, charged bigint[], signed bigint[], total bigint);
create type tabs.verdict as (
  verdict text, payment_id text, line_total bigint, accepted_at float8, known integer, requests integer, charged bigint,
  credit bigint, -- the credit with which the request's line started, if this request added the line
  line_reduced bigint,
  payer_credit bigint -- the maximum that the tab's payer may owe on all tabs; null: unlimited
);
