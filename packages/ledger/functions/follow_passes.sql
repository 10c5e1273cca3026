-- Decides for the passes of these payments whether they have ended, and why. It is called whenever one of the facts below changes, and
-- reads all of them, so the order of changes doesn't matter.
--
-- refunded: accepted refunds return at least the provider's part. This stays so even if a refund fails later, because the provider ended the
--           pass on purpose and can sign the refund again.
-- voided:   the provider did not serve the request that bought the pass.
-- unpaid:   the payment failed or was cancelled on chain, or an attempt to settle it failed through the payment's own fault. Once the payment
--           settles, the pass is valid again.
create or replace function follow_passes(payment_ids text[]) returns void language sql as $$
  update pass set end_reason = facts.reason,
    ended_at = case
      when facts.reason is null then null
      when pass.end_reason = facts.reason then pass.ended_at
      else clock_timestamp()
    end
  from (
    select p.payment_id, case
      when p.end_reason = 'refunded' or refunded.amount >= paid.provider_amount then 'refunded'
      when o.kind = 'settled' then null
      when o.kind = 'voided' then 'voided'
      when o.kind = 'spent' and exists (
        select from authorization_event e where e.payment_id = p.payment_id and e.half = 0 and e.state = 'settled'
      ) then null
      when o.kind is not null or exists (select from settlement_failure f where f.payment_id = p.payment_id) then 'unpaid'
    end as reason
    from pass p
    join payment paid on paid.id = p.payment_id
    left join payment_result o on o.payment_id = p.payment_id
    left join refund_total refunded on refunded.payment_id = p.payment_id
    where p.payment_id = any (payment_ids)
  ) facts
  where pass.payment_id = facts.payment_id and pass.end_reason is distinct from facts.reason
$$;
