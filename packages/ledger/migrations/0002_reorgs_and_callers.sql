-- What a mined transaction cost and showed, so that a reorg takes it back.
alter table transaction
  add column cost numeric(78, 0), -- of its gas, USDC base units, as it is in gas_cost; null: it isn't mined
  add column cost_day date,
  add column refused text[],      -- payers whose payments failed in it, as payer.mined_failures counts them
  add check ((cost is null) = (cost_day is null) and (cost is null) = (refused is null));
alter table batch_item
  add column gas numeric(78, 0),  -- what its transaction added to queue.gas_spent
  -- It left the batch before anything was signed: no transaction carries it.
  add column is_dropped boolean not null default false;

-- Callers without an API key take turns by whom they are paid for.
drop index queue_due;
create index queue_due on queue (group_id, has_code, (coalesce(provider_id, payee)), due_at)
  where stage = 'waiting' and due_at is not null;
drop index queue_caller;
create index queue_caller on queue (coalesce(provider_id, payee)) where stage = 'reserved' or due_at is not null;
