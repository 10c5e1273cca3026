import { ConfigError } from '@tollkeeper/runtime/env'
import { type Network, networks } from '@tollkeeper/sdk/protocol/networks'
import type { Queryable } from './database.ts'

// The table `network` contains the networks that this process knows, so that constraints and queries can use them.

type NetworkRow = Pick<Network, 'chainId' | 'name' | 'testnet'>

/** Returns the known networks that the table lacks or has with other values; an empty list if the schema has no such table. */
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

/**
 * Writes the known networks to the table, and keeps rows of other networks.
 *
 * @throws {ConfigError} if `NETWORKS_FILE` gives a network a different chain id than the table, or makes a test network a production network or the
 *   reverse.
 */
export async function storeNetworks(sql: Queryable, into: string): Promise<void> {
  for (const { chainId, name, testnet } of await findChangedNetworks(sql, into))
    await sql`
      insert into ${sql(into)}.network (chain_id, name, is_testnet) values (${chainId}, ${name}, ${testnet})
      on conflict (chain_id) do update set name = excluded.name, is_testnet = excluded.is_testnet`.catch(
      (error: { code?: string }) => {
        throw describeConflict({ chainId, name, testnet }, error)
      },
    )
}

const uniqueViolation = '23505'
const foreignKeyViolation = '23503'

function describeConflict({ chainId, name, testnet }: NetworkRow, error: { code?: string }): unknown {
  if (error.code === uniqueViolation)
    return new ConfigError(
      'NETWORKS_FILE',
      `another name for chain ${chainId}`,
      `"${name}", which is the name of another chain in the database`,
    )
  if (error.code === foreignKeyViolation)
    return new ConfigError(
      'NETWORKS_FILE',
      `${name} to be a ${testnet ? 'production' : 'test'} network, as it was when endpoints were registered on it`,
      `testnet ${testnet}`,
    )
  return error
}

/**
 * Requires that this process knows every network on which someone is paid: views, receipts and the keeper couldn't name an unknown network.
 *
 * @throws {ConfigError} if a network's description is missing.
 */
export async function requireKnownNetworks(sql: Queryable, into: string): Promise<void> {
  const known = Object.values(networks).map(({ chainId }) => chainId)
  const missing = await sql<{ chainId: number; name: string }[]>`
    select n.chain_id as "chainId", n.name from ${sql(into)}.network n
    where n.chain_id <> all (${known}::int[])
      and exists (select from ${sql(into)}.wallet w where w.chain_id = n.chain_id)
    order by n.chain_id`
  if (missing.length === 0) return
  const names = missing.map(({ chainId, name }) => `${name} (chain ${chainId})`).join(', ')
  throw new ConfigError(
    'NETWORKS_FILE',
    `a description of every network with wallets in the database`,
    `no description of ${names}`,
  )
}

/**
 * Returns the condition that a column's network is a test network. Postgres reads the table once for the whole statement. A function that
 * reads it would run for each row, because Postgres can't inline it.
 */
export function isTestnet(sql: Queryable, chainId = sql`chain_id`) {
  return sql`(${chainId} = any (array(select n.chain_id from network n where n.is_testnet)))`
}
