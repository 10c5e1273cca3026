-- Adds the candidates' amounts to their payers' accepted totals, and returns the ids of candidates that exceed their payer's limit. A tab adds
-- nothing, because its reservation is already counted.
--
-- The statement that adds an amount also checks the limit, so no concurrent call can exceed it. It locks the payer's row until the
-- transaction ends. Payers are locked in order, so that concurrent calls can't deadlock.
create or replace function reserve_balances(candidates candidate[]) returns text[] language plpgsql as $$
declare
  candidate candidate;
  amount numeric; -- the amount that the candidate adds
  reserving record;
  over_limit text[] := '{}';
begin
  for reserving in
    select c.chain_id, c.token, c.payer, min(c.payer_limit) as least, array_agg(c) as candidates,
      coalesce(sum(c.provider_amount + c.fee_amount) filter (where c.tab_id is null), 0) as total
    from unnest(candidates) as c group by 1, 2, 3 order by 1, 2, 3
  loop
    -- Add all candidates of a payer at once. If they exceed the limit, add them one by one.
    insert into payer as p (chain_id, token, address, accepted_total)
    select reserving.chain_id, reserving.token, reserving.payer, reserving.total
    where reserving.least is null or reserving.total <= reserving.least
    on conflict (chain_id, token, address) do update
      set accepted_total = p.accepted_total + excluded.accepted_total
      where reserving.least is null or p.accepted_total + excluded.accepted_total <= reserving.least;
    if not found then
      foreach candidate in array reserving.candidates loop
        amount := case when candidate.tab_id is null then candidate.provider_amount + candidate.fee_amount else 0 end;
        insert into payer as p (chain_id, token, address, accepted_total)
        select candidate.chain_id, candidate.token, candidate.payer, amount
        where candidate.payer_limit is null or amount <= candidate.payer_limit
        on conflict (chain_id, token, address) do update
          set accepted_total = p.accepted_total + excluded.accepted_total
          where candidate.payer_limit is null or p.accepted_total + excluded.accepted_total <= candidate.payer_limit;
        if not found then over_limit := over_limit || candidate.id; end if;
      end loop;
    end if;
  end loop;
  return over_limit;
end
$$;
