import { type Network, networks } from '@tollkeeper/sdk/protocol/networks'
import type { Queryable } from './database.ts'

// The table `network` holds this version's networks, so that constraints and queries can read them.

type NetworkRow = Pick<Network, 'chainId' | 'name' | 'testnet'>

/** Returns this version's networks that the table lacks or has with other values; none if the schema has no such table. */
export async function findChangedNetworks(sql: Queryable, into: string): Promise<NetworkRow[]> {
  const [found] = await sql<[{ exists: boolean }]>`
    select to_regclass(${`${into}.network`}) is not null as exists`
  if (!found.exists) return []
  const rows = await sql<NetworkRow[]>`
    select chain_id as "chainId", name, is_testnet as testnet from ${sql(into)}.network`
  const stored = new Map(rows.map((row) => [row.chainId, row]))
  return Object.values(networks).filter(({ chainId, name, testnet }) => {
    const row = stored.get(chainId)
    return row?.name !== name || row.testnet !== testnet
  })
}

/** Writes this version's networks into the table. Rows of other networks stay. */
export async function storeNetworks(sql: Queryable, into: string): Promise<void> {
  for (const { chainId, name, testnet } of await findChangedNetworks(sql, into))
    await sql`
      insert into ${sql(into)}.network (chain_id, name, is_testnet) values (${chainId}, ${name}, ${testnet})
      on conflict (chain_id) do update set name = excluded.name, is_testnet = excluded.is_testnet`
}

/**
 * Whether a column's network is a test network. Postgres reads the table once for the whole statement. A function that reads it would run
 * for each row, because Postgres can't inline it.
 */
export function isTestnet(sql: Queryable, chainId = sql`chain_id`) {
  return sql`(${chainId} = any (array(select n.chain_id from network n where n.is_testnet)))`
}
