-- The tab store: what buyers bought on tabs that are open, request by request (docs/tabs.md). It may be a database of its own, on
-- Citus too: every table is keyed by payer first, no statement joins it with anything else, and a statement asks for one payer
-- (but for those that look for tabs to close). It runs on Postgres 15 and later.
--
-- Keys are bytes: a request is written once and its key twice, so text would double what it writes to the log.
-- Amounts are USDC base units.

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
  reserved bigint not null,   -- credit that the ledger reserved for it
  -- From here on is what each request changes: the log holds a row's changed bytes, from the first one to the last.
  used_at timestamptz not null, -- of its latest request
  requests integer not null default 0,
  sequence bigint not null default 0, -- of the newest state
  charged bigint[] not null default '{}', -- an amount a line
  signed bigint[],            -- by the newest state; null: just what is charged
  check ((closed_at is null) = (close_reason is null)),
  check (taken_at is null or closed_at is not null),
  primary key (payer, id)
)
-- Each request updates its row in place, so no index has a column that a request changes.
with (fillfactor = 50);
create index tab_id on tabs.tab (id);
create index tab_open on tabs.tab ((payer || id)) where closed_at is null;
create index tab_taken on tabs.tab (taken_at) where taken_at is not null;
create index tab_closed on tabs.tab (closed_at) where closed_at is not null and taken_at is null;

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
  check (charged between 0 and price),
  primary key (payer, tab_id, sequence)
);

-- What a buyer was charged too much, because nobody signed less: its next tab begins with it.
create table tabs.credit (
  payer bytea not null,
  chain_id integer not null,
  split bytea not null,
  amount bigint not null check (amount > 0),
  primary key (payer, chain_id, split)
);

create type tabs.candidate as (
  payer bytea, tab_id bytea, chain_id integer, token bytea, contract bytea, platform bytea, reward_share integer, nonce bytea,
  expires_at bigint, has_code boolean, payment_id text,
  reserved bigint, -- in all for this tab; null: nothing new was reserved
  sequence bigint, amounts bigint[], signature bytea, request_hash bytea,
  position integer, price bigint, provider_id text, endpoint_id text,
  splits bytea[], -- of the lines from `known` on
  known integer
);
create type tabs.verdict as (
  verdict text, payment_id text, line_total bigint, accepted_at float8, known integer, requests integer, charged bigint,
  credit bigint -- that the request's line began with, where this request opened it
);

-- Puts requests on tabs, whose signatures were verified against the very lines that are stored.
--
-- accepted:   durable once the transaction is
-- repeated:   it was, by the same request
-- replayed:   its state bought another request
-- unreserved: more credit must be reserved first
-- closed, mismatch (the tab has other terms or lines), behind (the newest state doesn't cover what is charged)
create function tabs.accept(candidates tabs.candidate[]) returns setof tabs.verdict language plpgsql as $$
#variable_conflict use_column
declare
  c tabs.candidate;
  t tabs.tab;
  r tabs.request;
  v tabs.verdict;
  width integer;      -- lines of the tab with this request
  bought smallint;    -- number of what is bought
  newest bigint[];
  owed bigint[];
  total bigint;
  credited bigint;
  at timestamptz := clock_timestamp(); -- Citus takes no volatile function in an update
begin
  foreach c in array candidates loop
    width := c.known + cardinality(c.splits);
    -- Again, where somebody changes the tab between its being read and being written. A lock would be written to the log.
    loop
      v := (null, null, null, null, null, null, null, null);
      select * into t from tabs.tab where payer = c.payer and id = c.tab_id;
      if t.payer is null or cardinality(t.charged) < width then
        if t.payer is null and c.reserved is not null then
          insert into tabs.tab (payer, id, chain_id, token, contract, platform, reward_share, nonce, expires_at, has_code,
            payment_id, reserved, opened_at, used_at)
          values (c.payer, c.tab_id, c.chain_id, c.token, c.contract, c.platform, c.reward_share, c.nonce, c.expires_at,
            c.has_code, c.payment_id, c.reserved, at, at)
          on conflict do nothing;
        end if;
        select * into t from tabs.tab where payer = c.payer and id = c.tab_id for update;
      end if;
      v.payment_id := t.payment_id;
      v.known := coalesce(cardinality(t.charged), 0);
      -- A state that is newer than the newest bought nothing yet.
      if c.sequence <= t.sequence then
        select * into r from tabs.request where payer = c.payer and tab_id = c.tab_id and sequence = c.sequence;
        if r.payer is not null then
          v.verdict := case when r.request_hash = c.request_hash then 'repeated' else 'replayed' end;
          v.line_total := r.line_total;
          v.accepted_at := extract(epoch from r.accepted_at) * 1000;
          v.requests := t.requests;
          exit;
        end if;
      end if;
      v.verdict := case
        when t.payer is null then 'unreserved'
        when t.closed_at is not null then 'closed'
        when t.chain_id <> c.chain_id or t.token <> c.token or t.contract <> c.contract or t.platform <> c.platform
          or t.reward_share <> c.reward_share or t.expires_at <> c.expires_at then 'mismatch'
        when c.known > v.known then 'mismatch'
      end;
      exit when v.verdict is not null;
      -- Somebody else added another line at the same time.
      if c.known < v.known and width > c.known and exists (
        select from tabs.line l where l.payer = c.payer and l.tab_id = c.tab_id and l.position >= c.known and l.position < width
          and l.split <> c.splits[l.position - c.known + 1]
      ) then
        v.verdict := 'mismatch';
        exit;
      end if;

      owed := t.charged;
      credited := 0;
      for i in v.known .. width - 1 loop
        if i = c.position then
          select amount into credited from tabs.credit
          where payer = c.payer and chain_id = c.chain_id and split = c.splits[i - c.known + 1] for update;
          credited := coalesce(credited, 0);
        end if;
        owed := owed || case when i = c.position then -credited else 0 end;
      end loop;
      owed[c.position + 1] := owed[c.position + 1] + c.price;
      newest := case when c.sequence > t.sequence then c.amounts else coalesce(t.signed, t.charged) end;
      total := 0;
      for i in 1 .. cardinality(owed) loop
        if coalesce(newest[i], 0) < owed[i] then
          v.verdict := 'behind';
          exit;
        end if;
        total := total + greatest(owed[i], 0);
      end loop;
      if v.verdict is null and total > greatest(t.reserved, c.reserved) then
        v.verdict := 'unreserved';
      end if;
      if v.verdict is not null then
        -- Nothing was bought on it: it was never opened.
        if t.requests = 0 then delete from tabs.tab where payer = c.payer and id = c.tab_id and requests = 0; end if;
        exit;
      end if;

      update tabs.tab set requests = t.requests + 1, used_at = at, reserved = greatest(t.reserved, c.reserved),
        sequence = greatest(t.sequence, c.sequence), signed = nullif(newest, owed), charged = owed
      -- A plain "closed_at is null" may be looked up in the index of all open tabs.
      where payer = c.payer and id = c.tab_id and requests = t.requests and charged = t.charged
        and closed_at is not distinct from t.closed_at;
      continue when not found;

      if width > v.known then
        insert into tabs.line (payer, tab_id, position, split, credit)
        select c.payer, c.tab_id, i, c.splits[i - c.known + 1], case when i = c.position then credited else 0 end
        from generate_series(v.known, width - 1) i;
        if credited > 0 then
          delete from tabs.credit
          where payer = c.payer and chain_id = c.chain_id and split = c.splits[c.position - c.known + 1];
          v.credit := credited;
        end if;
      end if;
      v.verdict := 'accepted';
      v.line_total := greatest(owed[c.position + 1], 0);
      v.accepted_at := extract(epoch from at) * 1000;
      v.known := cardinality(owed);
      v.requests := t.requests + 1;
      v.charged := total;
      select number into bought from tabs.item
      where payer = c.payer and tab_id = c.tab_id and position = c.position and endpoint_id = c.endpoint_id;
      if bought is null then
        insert into tabs.item (payer, tab_id, number, position, provider_id, endpoint_id)
        select c.payer, c.tab_id, coalesce(max(i.number) + 1, 0), c.position, c.provider_id, c.endpoint_id
        from tabs.item i where i.payer = c.payer and i.tab_id = c.tab_id
        returning number into bought;
      end if;
      insert into tabs.request (price, line_total, accepted_at, sequence, item, payer, tab_id, request_hash, signature)
      values (c.price, v.line_total, at, c.sequence, bought, c.payer, c.tab_id, c.request_hash, c.signature);
      exit;
    end loop;
    return next v;
  end loop;
end
$$;

-- Charges less than the price for a request. Returns what became of it: charged, closed, or over (more than the price, or than is
-- signed).
create function tabs.charge(of_payer bytea, of_tab bytea, of_sequence bigint, amount bigint) returns text
language plpgsql as $$
#variable_conflict use_column
declare
  t tabs.tab;
  r tabs.request;
  i tabs.item;
begin
  select * into t from tabs.tab where payer = of_payer and id = of_tab for update;
  select * into r from tabs.request where payer = of_payer and tab_id = of_tab and sequence = of_sequence;
  select * into i from tabs.item where payer = of_payer and tab_id = of_tab and number = r.item;
  if amount > r.price then return 'over'; end if;
  if amount = coalesce(r.charged, r.price) then return 'charged'; end if;
  if t.closed_at is not null then return 'closed'; end if;
  -- It may be raised again, up to what is covered.
  t.signed := coalesce(t.signed, t.charged);
  t.charged[i.position + 1] := t.charged[i.position + 1] - coalesce(r.charged, r.price) + amount;
  if t.charged[i.position + 1] > t.signed[i.position + 1] then return 'over'; end if;
  update tabs.request set charged = amount where payer = of_payer and tab_id = of_tab and sequence = of_sequence;
  update tabs.tab set charged = t.charged, signed = nullif(t.signed, t.charged) where payer = of_payer and id = of_tab;
  return 'charged';
end
$$;
