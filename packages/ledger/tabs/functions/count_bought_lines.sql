-- Returns the number of lines of a request's tab on which something was bought, including the line that the request adds to.
create or replace function tabs.count_bought_lines(c tabs.candidate) returns integer language plpgsql stable as $$
begin
  return 1 + (
    select count(distinct i.position) from tabs.item i
    where i.payer = c.payer and i.tab_id = c.tab_id and i.position <> c.position
  );
end
$$;
