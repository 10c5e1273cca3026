-- What providers look at. Sums are kept of concluded payments only: their money can't move any more, whatever the chain
-- does within its finality. All others are summed from the indexed chain at the moment of the question, so a reorg shows
-- at once. Should a concluded payment be opened again (a reorg deeper than that), its share leaves the sums with it.

-- Null: not in the sums. Else what went in, as bits: 1 its provider half arrived, 2 its fee half arrived, 4 voided.
alter table payment add column summarised smallint check (summarised between 0 and 7);

create index payment_unsummarised on payment (provider_id, accepted_at) where summarised is null;
create index payment_to_summarise on payment (concluded_at) where summarised is null and concluded_at is not null;
create index payment_endpoint on payment (endpoint_id, accepted_at desc, id desc);
create index payment_provider_payer on payment (provider_id, payer, accepted_at desc, id desc);
create index payment_provider_voided on payment (provider_id, accepted_at desc, id desc) where voided_at is not null;
create index payment_unconcluded on payment (provider_id, accepted_at desc, id desc) where concluded_at is null;
-- One half arrived, and nothing more will come.
create index payment_partial on payment (provider_id, accepted_at desc, id desc)
  where summarised in (1, 2, 5, 6) and fee_amount > 0;
create index payment_troubled on payment (provider_id, accepted_at desc, id desc)
  where first_failed_at is not null and (concluded_at is null or failed_at is not null);

create index evidence_transaction on evidence (tx_hash);

create table revenue (
  provider_id text not null references provider,
  period text not null check (period in ('hour', 'day', 'month')), -- UTC
  starts_at timestamptz not null,                          -- by when payments were accepted
  endpoint_id text not null references endpoint,
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
  primary key (provider_id, period, starts_at, endpoint_id, chain_id, payee)
);

create table payer_revenue (
  provider_id text not null references provider,
  chain_id integer not null,
  payer address not null,
  payments integer not null,
  gross numeric(78, 0) not null,
  settled_net numeric(78, 0) not null,
  last_accepted_at timestamptz not null,
  primary key (provider_id, chain_id, payer)
);
create index payer_revenue_top on payer_revenue (provider_id, gross desc, chain_id, payer);

-- What one payment adds to the sums, given its bits. A set, of one row: as such Postgres puts it in line.
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
    and r.endpoint_id = old.endpoint_id and r.chain_id = old.chain_id and r.payee = old.payee;
  update payer_revenue r set
    payments = r.payments - share.payments,
    gross = r.gross - share.gross,
    settled_net = r.settled_net - share.settled_net
  where r.provider_id = old.provider_id and r.chain_id = old.chain_id and r.payer = old.payer;
  new.summarised := null;
  return new;
end
$$;

create trigger payment_leaves_revenue before update of concluded_at on payment for each row
  when (old.concluded_at is not null and new.concluded_at is null and old.summarised is not null)
  execute function leave_revenue();

-- Calls that reached the gateway, by what became of them: 'challenged', 'paid', or the code of the refusal. Counted in
-- each process and added now and then, so a request costs no write; a crash loses the counts of a few seconds.
create table usage (
  provider_id text not null references provider,
  hour timestamptz not null,
  endpoint_id text not null references endpoint,
  outcome text not null check (length(outcome) <= 50),
  calls bigint not null,
  primary key (provider_id, hour, endpoint_id, outcome)
);
