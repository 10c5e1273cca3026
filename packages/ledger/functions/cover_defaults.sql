-- Direction 1: makes the platform bear final defaults on tabs, up to the fees that it kept of the payer plus the credit that it granted the payer.
-- Direction -1: withdraws the amounts that the platform was to bear and hasn't paid yet. Runs after add_to_revenue, in the same transaction, and
-- uses the arrived amounts that add_to_revenue stored.
--
-- Locking the payer's row serializes the defaults of one payer, so the platform never bears more than this maximum, even if several tabs end at the
-- same time. Payers are locked in order, as in reserve_balances, so that concurrent calls can't deadlock.
create or replace function cover_defaults(ended payment_result[], direction integer) returns void language plpgsql as $$
declare
  lost record;
  kept numeric; -- kept fees of this payer that earlier defaults didn't use up, plus the granted credit
  moved numeric;
begin
  for lost in
    select p.id, p.chain_id, p.token, p.payer, case when direction = 1 then default_of_tab(p.id) end as amount
    from unnest(ended) o join payment p on p.id = o.payment_id
    where p.source = 'tab' and o.kind <> 'voided' and (o.kind <> 'settled' or o.is_partial)
    order by p.chain_id, p.token, p.payer, p.id
  loop
    -- This must be a separate statement, so that the next statement reads rows that were committed while this statement waited.
    perform from payer y
    where y.chain_id = lost.chain_id and y.token = lost.token and y.address = lost.payer for update;
    select coalesce((
      select sum(r.kept_fee) from payer_revenue r
      where r.payer = lost.payer and r.chain_id = lost.chain_id and r.period = 'all'
    ), 0) + coalesce((
      select g.amount from granted_credit g where g.payer = lost.payer and g.chain_id = lost.chain_id
    ), 0) - y.covered into kept
    from payer y where y.chain_id = lost.chain_id and y.token = lost.token and y.address = lost.payer;
    if direction = 1 and lost.amount > 0 and kept > 0 then
      with borne as (
        insert into covered_default (payment_id, provider_id, payee, chain_id, payer, amount)
        select lost.id, s.provider_id, s.payee, lost.chain_id, lost.payer, part.amount
        from (
          select t.provider_id, t.payee, sum(share.failed_net) as unpaid
          from sale t cross join lateral sale_share(t, false, 0) share
          where t.payment_id = lost.id and t.provider_id is not null group by 1, 2
        ) s
        cross join lateral (
          select case when lost.amount <= kept then s.unpaid else div(s.unpaid * kept, lost.amount) end as amount
        ) part
        where part.amount > 0
        on conflict do nothing
        returning amount
      )
      select coalesce(sum(amount), 0) into moved from borne;
    elsif direction = -1 then
      with withdrawn as (
        delete from covered_default c where c.payment_id = lost.id and c.paid_tx is null returning c.amount
      )
      select -coalesce(sum(amount), 0) into moved from withdrawn;
    else
      continue;
    end if;
    update payer set covered = covered + moved
    where chain_id = lost.chain_id and token = lost.token and address = lost.payer and moved <> 0;
  end loop;
end
$$;
