-- Ends a tab that never becomes a payment, because it is too small to settle or another payment uses its nonce. The amount bought on it
-- permanently reduces its payer's credit. Calling it again changes nothing.
--
-- It locks the payer's row before the reservation, like reserve_for_tab.
create or replace function leave_unpaid(of_payer text, of_tab text, bought numeric) returns void language plpgsql as $$
declare
  r tab_reservation;
begin
  select * into r from tab_reservation where payer = of_payer and tab_id = of_tab;
  perform from payer p where p.chain_id = r.chain_id and p.token = r.token and p.address = r.payer for update;
  if end_reservation(of_payer, of_tab, bought) then
    update payer p set left_unpaid = p.left_unpaid + bought
    where p.chain_id = r.chain_id and p.token = r.token and p.address = r.payer;
  end if;
end
$$;
