-- Stores payments that passed all earlier checks. Refuses payments that are replays, exceed their payer's limit, have gas that no allowance covers,
-- come while sales are stopped, or come too late for their caller. A refused payment doesn't affect the others. All of this is one function, so that a
-- group takes one round trip and one commit, and a slow client can't hold its locks (packages/ledger/acceptance/acceptPayments.ts).
--
-- Candidates are stored before they are judged, and refused candidates are deleted again. Judging them first would miss concurrent calls, because
-- only the statements that reserve amounts, and the unique keys, see the effects of these calls.
--
-- Returns only the refused payments, with their verdicts by judge_payments.
create or replace function accept_payments(candidates candidate[], authorizations candidate_authorization[])
returns table (refused_id text, reason text) language plpgsql as $$
declare
  over_limit text[];
  stored text[];
  uncovered text[] := '{}';
  has_gas boolean;
  has_splitter boolean;
  refused text[];
  reasons text[];
begin
  select bool_or(c.gas_amount is not null), bool_or(c.splitter is not null and c.tab_id is null) into has_gas, has_splitter
  from unnest(candidates) as c;
  over_limit := reserve_balances(candidates);
  stored := store_payments(candidates, authorizations, over_limit || find_replays(candidates, authorizations, over_limit));

  if has_gas then
    -- Draw gas after all steps that may wait for a lock, because other calls wait for the allowance's row until this call ends.
    select coalesce(array_agg(drawn.id) filter (where not drawn.is_covered), '{}') into uncovered
    from (
      select c.id, draw_gas(c.id, source.drawer, source.most, c.gas_amount,
        (to_timestamp(c.accepted_at / 1000) at time zone 'UTC')::date,
        case when c.source = 'refund' then c.gas_provider_id end) as is_covered
      from unnest(candidates) as c cross join lateral gas_source(c.gas_provider_id, c.gas_common, c.chain_id,
        case when c.source = 'refund' then 'refunds' else 'common' end) as source
      where c.gas_amount is not null and c.id = any (stored)
      order by source.drawer
    ) drawn;
  end if;

  -- Read the clock here, after all waits for a pooler or a lock.
  select array_agg(id), array_agg(verdict) into refused, reasons
  from judge_payments(candidates, over_limit, stored, uncovered,
    coalesce((select s.is_stopped from sales_change s order by s.id desc limit 1), false), extract(epoch from clock_timestamp())::float8 * 1000)
  where verdict <> 'accepted';

  if refused is not null then
    -- Skip the deletion if there is nothing to delete, because its trigger would run anyway. Delete only payments that this call stored,
    -- because a replay may have the same id as the payment that it repeats.
    if refused && stored then delete from payment where id = any (stored) and id = any (refused); end if;
    update payer p set accepted_total = p.accepted_total - taken.total
    from (
      select c.chain_id, c.token, c.payer, sum(c.provider_amount + c.fee_amount) as total
      from unnest(candidates) as c
      where c.id = any (refused) and c.id <> all (over_limit) and c.tab_id is null
      group by 1, 2, 3
    ) taken
    where p.chain_id = taken.chain_id and p.token = taken.token and p.address = taken.payer;
  end if;

  if has_splitter then
    -- Insert in order, so that concurrent calls can't deadlock.
    insert into splitter (chain_id, token, address, provider, platform, provider_share, platform_share)
    select distinct on (c.chain_id, c.token, c.splitter) c.chain_id, c.token, c.splitter, c.payee, c.fee_recipient,
      c.provider_share, c.platform_share
    from unnest(candidates) as c
    where c.splitter is not null and c.tab_id is null and not exists (
      select from splitter s where s.chain_id = c.chain_id and s.token = c.token and s.address = c.splitter
    )
    order by c.chain_id, c.token, c.splitter
    on conflict do nothing;
  end if;

  return query select * from unnest(refused, reasons);
end
$$;
