-- Where a mined transaction's gas was drawn, so that a reorg gives it back.
alter table transaction
  add column beyond numeric(78, 0); -- drawn of the operator's budget on cost_day, for what neither fees nor drawers cover
alter table batch_item
  add column gas_drawer text,       -- whose `gas` it is
  add column gas_day date;
update batch_item i set gas_drawer = q.gas_drawer, gas_day = q.gas_day
from queue q where q.payment_id = i.payment_id and i.gas is not null;
