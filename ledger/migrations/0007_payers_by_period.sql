-- Top payers of some days, too: payer_revenue has a row for all time, and one for each month and day, UTC.
alter table payer_revenue
  add column period text not null default 'all' check (period in ('all', 'month', 'day')),
  add column starts_at timestamptz not null default 'epoch'; -- by when payments were accepted; with 'all', the epoch
alter table payer_revenue alter column period drop default, alter column starts_at drop default;
alter table payer_revenue drop constraint payer_revenue_pkey;
alter table payer_revenue add primary key (provider_id, period, starts_at, chain_id, payer);
drop index payer_revenue_top;
create index payer_revenue_top on payer_revenue (provider_id, gross desc, chain_id, payer) where period = 'all';

insert into payer_revenue
  (provider_id, period, starts_at, chain_id, payer, payments, gross, settled_net, last_accepted_at)
select p.provider_id, period, date_trunc(period, p.accepted_at, 'UTC'), p.chain_id, p.payer, sum(share.payments),
  sum(share.gross), sum(share.settled_net), max(p.accepted_at)
from payment p
cross join lateral revenue_share(p.provider_amount, p.fee_amount, p.summarised) share
cross join (values ('month'), ('day')) as periods (period)
where p.summarised is not null
group by 1, 2, 3, 4, 5;

-- As in 0003, but for payer_revenue's periods.
create or replace function leave_revenue() returns trigger language plpgsql as $$
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
  where r.provider_id = old.provider_id and r.chain_id = old.chain_id and r.payer = old.payer
    and (r.period, r.starts_at) in (('all', 'epoch'), ('month', date_trunc('month', old.accepted_at, 'UTC')),
      ('day', date_trunc('day', old.accepted_at, 'UTC')));
  new.summarised := null;
  return new;
end
$$;
