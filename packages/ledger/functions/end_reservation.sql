-- Ends a tab's reservation when the tab closes or was never opened, and returns the unused part of its loans to their budgets. The used
-- part stays drawn until the tab's settlement is final (return_loans). Returns whether there was a reservation.
--
-- used: the amount bought on the tab. It uses up the payer's earned credit first.
create or replace function end_reservation(of_payer text, of_tab text, used numeric) returns boolean language plpgsql as $$
declare
  unused numeric;
begin
  delete from tab_reservation where payer = of_payer and tab_id = of_tab returning greatest(0, reserved - used) into unused;
  if not found then return false; end if;
  perform reduce_loan(of_payer, of_tab, unused);
  return true;
end
$$;
