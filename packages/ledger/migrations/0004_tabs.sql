-- Tabs (docs/tabs.md). What is open stands in the tab store (packages/ledger/tabs), which may be another database; a tab that closes becomes
-- one payment here, of source `tab`: one authorization, which pays the TabSettlement contract, and its lines.

-- Credit for open tabs, reserved in steps: it counts as owed until the tab is closed and its payment stands in its place.
create table tab_reservation (
  tab_id text primary key check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  chain_id integer not null,
  token address not null,
  payer address not null,
  reserved usdc_amount not null,
  reserved_at timestamptz not null default now() -- the latest step
);
create index on tab_reservation (payer);

-- What was bought on tabs that ended too small to settle: it is taken off the payer's credit for good.
alter table payer add column left_unpaid usdc_amount not null default 0;

-- A payer's credit grows with what ever settled of it, and no further than the fees that settled with that: what moves between wallets of
-- one owner earns none. Fees of earlier payments don't count.
alter table payer_revenue add column settled_fee numeric(78, 0) not null default 0;
create index payer_revenue_payer on payer_revenue (payer, chain_id) where period = 'all';

alter table payment drop constraint payment_source_check;
alter table payment add constraint payment_source_check
  check (source in ('gateway', 'facilitator', 'refund', 'submission', 'tab'));
alter table payment drop constraint payment_check;
alter table payment add constraint payment_splitter_check check (splitter is null or fee_amount > 0 or source = 'tab');
alter table payment drop constraint payment_check2;
alter table payment add constraint payment_provider_check check (case source
  when 'gateway' then provider_id is not null and endpoint_id is not null
  when 'facilitator' then endpoint_id is null and fee_amount = 0
  when 'refund' then provider_id is null and endpoint_id is null and fee_amount = 0
  -- Its lines say whose it is. `payee` and `splitter` are the TabSettlement contract.
  when 'tab' then provider_id is null and endpoint_id is null and splitter = payee
  else provider_id is null and endpoint_id is null
end);

-- Of payments that are tabs. The state that settles is fixed with it: whatever else the buyer signed is of no use any more.
create table tab_payment (
  payment_id text primary key,
  tab_id text not null unique check (tab_id ~ '^tab_[0-9a-f]{32}$'),
  sequence bigint not null check (sequence > 0 and sequence < 1099511627776), -- of the state that settles
  reward_share integer not null check (reward_share between 0 and 10000),     -- basis points of the platform's part, as signed
  requests integer not null check (requests > 0),
  close_reason text not null,
  opened_at timestamptz not null
);

-- What each line of a tab settles: all that it pays in these shares to one wallet.
create table tab_line (
  payment_id text not null,
  position smallint not null,
  payee address not null,
  provider_share bigint not null check (provider_share >= 0 and provider_share < 281474976710656),
  platform_share bigint not null check (platform_share >= 0 and platform_share < 281474976710656),
  amount bigint not null check (amount >= 0 and amount < 281474976710656), -- as signed
  moved bigint check (moved >= 0), -- where another state of the tab moved: what that had on this line. Null: as signed, or nothing yet
  primary key (payment_id, position)
);

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
  -- Of a tab whose end is final: what of both parts arrived. Then it is in the providers' sums.
  arrived usdc_amount,
  is_exceptional boolean not null default false, -- the tab's end is final, and it isn't that all of it settled
  primary key (payment_id, number)
);
create index tab_sale_provider on tab_sale (provider_id, accepted_at);
create index tab_sale_endpoint on tab_sale (endpoint_id, accepted_at);
create index tab_sale_open on tab_sale (provider_id, accepted_at) where arrived is null;
create index tab_sale_exceptional on tab_sale (provider_id, accepted_at) where is_exceptional;

-- An event of a tab is told to each provider who sold on it.
drop index outbox_once;
create unique index outbox_once on outbox (event, payment_id, provider_id, coalesce(tx_hash, ''), occurrence)
  where payment_id is not null;

create or replace function delete_parts_of_payments() returns trigger language plpgsql as $$
begin
  delete from queue using gone where queue.payment_id = gone.id;
  delete from batch_item i using gone where i.payment_id = gone.id;
  delete from outcome using gone where outcome.payment_id = gone.id;
  delete from signed_authorization a using gone where a.payment_id = gone.id;
  delete from authorization_event e using gone where e.payment_id = gone.id;
  delete from presentation using gone where presentation.payment_id = gone.id;
  if exists (select from gone where source = 'tab') then
    delete from tab_payment t using gone where t.payment_id = gone.id;
    delete from tab_line l using gone where l.payment_id = gone.id;
    delete from tab_sale s using gone where s.payment_id = gone.id;
  end if;
  return null;
end
$$;

-- Everything that a provider was paid for: payments of its endpoints, and what was bought on tabs.
create view sale as
  select id as payment_id, null::smallint as number, source, provider_id, endpoint_id, chain_id, payer, payee,
    1 as requests, provider_amount, fee_amount, accepted_at
  from payment where provider_id is not null
  union all
  select payment_id, number, 'tab', provider_id, endpoint_id, chain_id, payer, payee,
    requests, provider_amount, fee_amount, accepted_at
  from tab_sale;

-- Reserves a step of credit for a tab: for as long as it is open, so much counts as owed.
--
-- payer_limit: what accepted_total may reach (balance or credit, plus what is no longer owed); null: any. earned_limit: what it may
-- reach by what has settled of the payer alone; null: nothing has. What of the step goes beyond that is lent. budget: what all payers
-- may be lent together on this day; null: any.
-- Returns what is reserved for the tab now; null: a limit was reached.
create function reserve_for_tab(tab text, chain integer, of_token text, of_payer text, step numeric, payer_limit numeric,
  earned_limit numeric, budget numeric, on_day date)
returns numeric language plpgsql as $$
declare
  accepted numeric;
  lent numeric;
  total numeric;
begin
  insert into payer as p (chain_id, token, address, accepted_total)
  select chain, of_token, of_payer, step where payer_limit is null or step <= payer_limit
  on conflict (chain_id, token, address) do update set accepted_total = p.accepted_total + excluded.accepted_total
    where payer_limit is null or p.accepted_total + excluded.accepted_total <= payer_limit
  returning accepted_total into accepted;
  if not found then return null; end if;
  lent := case when earned_limit is null then step else least(step, accepted - earned_limit) end;
  if budget is not null and lent > 0 then
    -- A drawer beside those for gas: only adding to it, so it is never over its limit, whoever draws at the same time.
    insert into gas_draw as d (day, drawer, drawn) select on_day, 'tab_credit', lent where lent <= budget
    on conflict (day, drawer) do update set drawn = d.drawn + excluded.drawn where d.drawn + excluded.drawn <= budget;
    if not found then
      update payer set accepted_total = accepted_total - step
      where chain_id = chain and token = of_token and address = of_payer;
      return null;
    end if;
  end if;
  insert into tab_reservation as r (tab_id, chain_id, token, payer, reserved) values (tab, chain, of_token, of_payer, step)
  on conflict (tab_id) do update set reserved = r.reserved + excluded.reserved, reserved_at = now()
    where r.payer = excluded.payer and r.chain_id = excluded.chain_id and r.token = excluded.token
  returning reserved into total;
  return total;
end
$$;

-- The name of a chain, as sdk/src/protocol/networks.ts says; packages/ledger/store/testnets.test.ts compares the two.
create function network_name(chain_id integer) returns text language sql immutable as $$
  select case chain_id
    when 8453 then 'base' when 84532 then 'base-sepolia' when 1 then 'ethereum' when 11155111 then 'ethereum-sepolia'
    when 137 then 'polygon' when 80002 then 'polygon-amoy' when 31337 then 'localhost'
  end
$$;

-- A time as the API writes it.
create function iso_time(at timestamptz) returns text language sql immutable as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- What of a sale has arrived, of both parts, by what the chain did with the tab's authorization (packages/ledger/facts/halves.ts). Where
-- another state moved than the one that was taken in, a line's sales arrived as far as that goes, the first first.
create function arrived_of_sale(of_payment text, of_position smallint, of_number smallint, of_amount numeric, state text)
returns table (arrived numeric) language sql stable as $$
  select case
    when l.moved is not null and state in ('settled', 'foreign_use') then least(of_amount, greatest(0, l.moved - (
      select coalesce(sum(e.provider_amount + e.fee_amount), 0) from tab_sale e
      where e.payment_id = of_payment and e.position = of_position and e.number < of_number
    )))
    when state = 'settled' then of_amount
    else 0
  end
  from tab_line l where l.payment_id = of_payment and l.position = of_position
$$;

-- What one sale adds to the sums, as revenue_share does of a payment: each request counts as one. Of a sale that arrived in part,
-- so many requests have settled as that pays for.
create function sale_share(requests integer, net numeric, platform_fee numeric, was_voided boolean, arrived numeric)
returns table (is_voided boolean, payments integer, voided_payments integer, settled_payments integer,
  failed_payments integer, gross numeric, fee numeric, settled_net numeric, settled_fee numeric, failed_net numeric)
language sql immutable as $$
  select counted.is_voided,
    case when counted.is_voided then 0 else requests end,
    case when counted.is_voided then requests else 0 end,
    counted.settled,
    case when counted.is_voided then 0 else requests - counted.settled end,
    case when counted.is_voided then 0 else net + platform_fee end,
    case when counted.is_voided then 0 else platform_fee end,
    arrived - counted.fee,
    counted.fee,
    case when counted.is_voided then 0 else net - (arrived - counted.fee) end
  from (
    select was_voided and arrived = 0 as is_voided,
      case when arrived = net + platform_fee then requests else div(requests * arrived, net + platform_fee)::int end as settled,
      case when arrived = net + platform_fee then platform_fee else div(platform_fee * arrived, net + platform_fee) end as fee
  ) counted
$$;

-- What each provider is told of a tab, of its own sales only: `data` of an event. Nothing for a payment that is none.
create function tab_shares(of_payment text) returns table (provider_id text, amount numeric, arrived numeric,
  settled_requests bigint, settled_net numeric, data jsonb) language sql stable as $$
  select sold.provider_id, sum(sold.net + sold.fee), sum(sold.arrived), sum(sold.settled_requests)::bigint, sum(sold.settled_net),
    jsonb_build_object('tabId', t.tab_id, 'closeReason', t.close_reason,
      'requests', sum(sold.requests), 'providerUsdc', sum(sold.net)::text, 'platformUsdc', sum(sold.fee)::text,
      'settledUsdc', sum(sold.settled_net)::text, 'lines', jsonb_agg(jsonb_build_object('endpointId', sold.endpoint_id,
        'payTo', sold.payee, 'requests', sold.requests, 'providerUsdc', sold.net::text, 'platformUsdc', sold.fee::text,
        'settledUsdc', sold.settled_net::text) order by sold.position, sold.endpoint_id))
  from tab_payment t join (
    select s.payment_id, s.provider_id, s.position, s.endpoint_id, s.payee, sum(s.requests) as requests,
      sum(s.provider_amount) as net, sum(s.fee_amount) as fee, sum(reach.arrived) as arrived,
      sum(share.settled_payments) as settled_requests, sum(share.settled_net) as settled_net
    from tab_sale s
    left join authorization_event e on e.payment_id = s.payment_id and e.half = 0
    cross join lateral arrived_of_sale(s.payment_id, s.position, s.number, s.provider_amount + s.fee_amount, e.state) reach
    cross join lateral sale_share(s.requests, s.provider_amount, s.fee_amount, false, reach.arrived) share
    where s.payment_id = of_payment
    group by 1, 2, 3, 4, 5
  ) sold on sold.payment_id = t.payment_id
  where t.payment_id = of_payment
  group by t.payment_id, sold.provider_id
$$;

-- Takes the payments of closed tabs in, each in the place of its reservation; what is taken in already stays as it is.
create type closed_tab as (
  payment_id text, tab_id text, chain_id integer, token text, payer text, has_code boolean, contract text, platform text,
  reward_share integer, sequence bigint, requests integer, close_reason text, opened_at float8, closed_at float8,
  expires_at bigint, nonce text, signature text, value numeric, provider_amount numeric, fee_amount numeric
);
create type sold_on_tab as (
  payment_id text, number smallint, position smallint, provider_id text, endpoint_id text, chain_id integer, payer text, payee text,
  requests integer, provider_amount numeric, fee_amount numeric, accepted_at timestamptz
);
create function take_tabs(tabs closed_tab[], lines tab_line[], sales sold_on_tab[]) returns void language plpgsql as $$
declare
  new_ids text[];
begin
  insert into queue_group (chain_id, token, fee_recipient)
  select distinct chain_id, token, platform from unnest(tabs) order by 1, 2, 3
  on conflict do nothing;
  with taken as (
    insert into payment (id, source, chain_id, token, payer, payee, fee_recipient, splitter, price, provider_amount, fee_amount,
      valid_before, tier, effective_rate, resource, challenged_at, accepted_at)
    select payment_id, 'tab', chain_id, token, payer, contract, platform, contract, value, provider_amount, fee_amount,
      expires_at, 'tab', trim_scale(trunc(fee_amount / value, 6))::text, tab_id,
      to_timestamp(opened_at / 1000), to_timestamp(closed_at / 1000)
    from unnest(tabs) order by payment_id
    on conflict (id) do nothing
    returning id
  ), own as materialized (
    select t.*, g.id as group_id from taken join unnest(tabs) as t on t.payment_id = taken.id
    join queue_group g on g.chain_id = t.chain_id and g.token = t.token and g.fee_recipient = t.platform
  ), queued as (
    insert into queue (payment_id, group_id, stage, payer, payee, provider_amount, fee_amount, accepted_at, valid_before, has_code,
      is_tab)
    select payment_id, group_id, 'waiting', payer, contract, provider_amount, fee_amount, to_timestamp(closed_at / 1000),
      expires_at, has_code, true
    from own
  ), presented as (
    insert into presentation (payment_id, request_hash, signature)
    select payment_id, sha256(tab_id::bytea), decode(substr(signature, 3), 'hex') from own
  ), signed as (
    insert into signed_authorization (payment_id, half, chain_id, token, authorizer, recipient, value, valid_after, valid_before, nonce)
    select payment_id, 0, chain_id, token, payer, contract, value, 0, expires_at, nonce from own
  ), kept as (
    insert into tab_payment (payment_id, tab_id, sequence, reward_share, requests, close_reason, opened_at)
    select payment_id, tab_id, sequence, reward_share, requests, close_reason, to_timestamp(opened_at / 1000) from own
  ), lined as (
    insert into tab_line select l.* from unnest(lines) l join own using (payment_id)
  ), sold as (
    insert into tab_sale (payment_id, number, position, provider_id, endpoint_id, chain_id, payer, payee, requests,
      provider_amount, fee_amount, accepted_at)
    select s.* from unnest(sales) s join own using (payment_id)
  )
  select array_agg(payment_id) into new_ids from own;
  insert into outbox (event, provider_id, payment_id, data)
  select 'tab.closed', told.provider_id, t.payment_id, told.data || jsonb_build_object(
    'network', network_name(t.chain_id), 'closedAt', iso_time(to_timestamp(t.closed_at / 1000)))
  from unnest(tabs) t cross join lateral tab_shares(t.payment_id) told
  where t.payment_id = any(new_ids)
  order by t.payment_id, told.provider_id;
  delete from tab_reservation r using unnest(tabs) t where r.tab_id = t.tab_id;
end
$$;

-- As in 0001_schema.sql, and with what was bought on tabs: each request counts as a payment. What arrived of a sale is kept with it,
-- so that just this is taken out again.
create or replace function add_to_revenue(ended outcome[], direction integer) returns void language sql as $$
  with sale as materialized (
    select s.*, o.kind = 'voided' as was_voided, o.kind <> 'settled' or o.is_partial as ended_badly, o.settlement_seconds,
      case when direction = 1 then reach.arrived else s.arrived end as has_arrived
    from unnest(ended) as o join tab_sale s on s.payment_id = o.payment_id
    cross join lateral arrived_of_sale(s.payment_id, s.position, s.number, s.provider_amount + s.fee_amount,
      case when o.arrived & 1 = 1 then 'settled' else 'foreign_use' end) reach
  ), kept as (
    update tab_sale s set arrived = case when direction = 1 then sale.has_arrived end,
      is_exceptional = direction = 1 and sale.ended_badly
    from sale where s.payment_id = sale.payment_id and s.number = sale.number
  ), share as (
    select p.provider_id, p.accepted_at, p.endpoint_id, p.chain_id, p.payee, p.payer, o.settlement_seconds, 1 as requests, s.*
    from unnest(ended) as o join payment p on p.id = o.payment_id
    cross join lateral revenue_share(p.provider_amount, p.fee_amount, o.kind = 'voided', o.arrived) s
    where p.provider_id is not null
    union all
    select sale.provider_id, sale.accepted_at, sale.endpoint_id, sale.chain_id, sale.payee, sale.payer, sale.settlement_seconds,
      sale.requests, s.*
    from sale
    cross join lateral sale_share(sale.requests, sale.provider_amount, sale.fee_amount, sale.was_voided, sale.has_arrived) s
  ), by_payer as (
    insert into payer_revenue as r
      (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, settled_fee, last_accepted_at)
    select provider_id, period,
      case period when 'all' then 'epoch' else date_trunc(period, accepted_at, 'UTC') end as starts_at,
      chain_id, payer, direction * sum(payments), direction * sum(gross), direction * sum(settled_net),
      direction * sum(settled_fee), max(accepted_at)
    from share cross join (values ('all'), ('month'), ('day')) as periods (period)
    group by 1, 2, 3, 4, 5
    order by 1, 2, 3, 4, 5
    on conflict (provider_id, period, starts_at, chain_id, payer) do update set
      payments = r.payments + excluded.payments, gross = r.gross + excluded.gross,
      settled_net = r.settled_net + excluded.settled_net, settled_fee = r.settled_fee + excluded.settled_fee,
      last_accepted_at = greatest(r.last_accepted_at, excluded.last_accepted_at)
  ), by_time as (
    insert into settlement_time as t (chain_id, day, bucket, payments)
    select chain_id, (accepted_at at time zone 'UTC')::date, settlement_bucket(settlement_seconds), direction * sum(requests)
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

-- A batch of tabs is of a kind of its own: the contract that settles it is another.
alter table batch drop constraint batch_lane_check;
alter table batch add constraint batch_lane_check
  check (lane in ('facilitator', 'shared', 'high_value', 'direct', 'code', 'quarantined', 'tab'));
alter table queue add column is_tab boolean not null default false;
-- Tabs wait among the others, and are claimed apart from them.
drop index queue_oldest;
create index queue_oldest on queue (group_id, is_tab, has_code, accepted_at, payment_id)
  where stage = 'waiting' and due_at is null;
