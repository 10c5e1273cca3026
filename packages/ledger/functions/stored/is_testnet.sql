-- Whether the USDC of a chain has no real value, as in sdk/src/protocol/networks.ts; packages/ledger/store/testnets.test.ts compares the two.
create or replace function is_testnet(chain_id integer) returns boolean language sql immutable as $$
  select chain_id in (84532, 11155111, 80002, 31337)
$$;
