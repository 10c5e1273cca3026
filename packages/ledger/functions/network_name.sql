-- The name of a chain, as in sdk/src/protocol/networks.ts; packages/ledger/store/testnets.test.ts compares the two.
create or replace function network_name(chain_id integer) returns text language sql immutable as $$
  select case chain_id
    when 8453 then 'base' when 84532 then 'base-sepolia' when 1 then 'ethereum' when 11155111 then 'ethereum-sepolia'
    when 137 then 'polygon' when 80002 then 'polygon-amoy' when 31337 then 'localhost'
  end
$$;
