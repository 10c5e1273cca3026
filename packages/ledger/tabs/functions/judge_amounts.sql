-- Judges whether a tab's newest state and its credit cover a request. The verdict is null if they do, else:
--
-- behind:     the newest state signs less on a line than is charged on it
-- unreserved: more credit must be reserved first
--
-- The judgment contains the tab's amounts after the request.
--
-- credited: the credit with which the request's line starts, if the request adds the line
create or replace function tabs.judge_amounts(c tabs.candidate, t tabs.tab_state, credited bigint) returns tabs.judgment
language plpgsql immutable as $$
declare
  charged bigint[] := t.charged;
  signed bigint[] := case when c.sequence > t.sequence then c.amounts else coalesce(t.signed, t.charged) end;
  total bigint := 0;
begin
  for i in cardinality(charged) .. c.known + cardinality(c.splits) - 1 loop
    charged := charged || case when i = c.position then -credited else 0 end;
  end loop;
  charged[c.position + 1] := charged[c.position + 1] + c.price;
  for i in 1 .. cardinality(charged) loop
    if coalesce(signed[i], 0) < charged[i] then return ('behind', charged, signed, null)::tabs.judgment; end if;
    total := total + greatest(charged[i], 0);
  end loop;
  return (case when total > greatest(t.reserved, c.reserved) then 'unreserved' end, charged, signed, total)::tabs.judgment;
end
$$;
