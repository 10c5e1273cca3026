-- What providers were told of the chain. Not what is so, which is the index's to say: only what was said last, so that a
-- reorg can be told too, and nothing twice.

create table payment_announcement (
  payment_id text primary key references payment on delete cascade,
  chain_id integer not null,
  provider_tx bytes32 not null,
  fee_tx bytes32,
  block_number bigint not null, -- of the later half
  is_settled boolean not null default true, -- false: it was taken back
  occurrence integer not null default 1 -- how often it was said to be settled
);
create index payment_announcement_young on payment_announcement (chain_id, block_number) where is_settled;

create table batch_announcement (
  chain_id integer not null,
  tx_hash bytes32 not null,
  log_index integer not null,
  provider_id text not null references provider,
  block_hash bytes32 not null,
  occurrence integer not null default 1, -- grows where a reorg put it into another block
  primary key (chain_id, tx_hash, log_index, provider_id)
);

-- Everything settled up to here was announced.
alter table acted_block add column announced_block bigint not null default 0;

-- Settled, taken back, and settled again by the same transaction are three messages.
alter table outbox add column occurrence integer not null default 1;
drop index outbox_once;
create unique index outbox_once on outbox (event, payment_id, coalesce(tx_hash, ''), occurrence)
  where payment_id is not null;

create index evidence_block on evidence (chain_id, block_number);
