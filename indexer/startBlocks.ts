import type { NetworkSettings } from '@tollkeeper/chain/networkSettings'
import { openReader } from '@tollkeeper/chain/reader'
import type { Database, Queryable } from '@tollkeeper/ledger/store/database'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { withSql } from './withSql.ts'

/** The schema of the stored hashes. It isn't Ponder's, so that it survives every rebuild of an index. */
const schema = 'indexer_start'

export type StartHashes = { [network in NetworkName]?: string }

/**
 * Returns the hash of each network's start block, which identifies its chain. The hash is fetched at the first start and stored, so later starts
 * don't need a node for it. Only a local chain's hash is fetched each time, because a local chain is often replaced by a new one with the same id.
 *
 * @param isReader whether to store nothing
 * @returns no hash for a network that has no stored hash and whose nodes don't answer now
 */
export function readStartHashes(
  databaseUrl: string,
  networks: readonly NetworkSettings[],
  isReader = false,
): Promise<StartHashes> {
  return withSql(databaseUrl, async (sql) => {
    const kept = await readKept(sql)
    const hashes = await Promise.all(
      networks.map(async (settings) => {
        const { network, deployment } = settings
        const known = kept.get(keyOf(network.chainId, deployment.startBlock))
        if (known !== undefined && network.name !== 'localhost') return [network.name, known] as const
        const found = await askStartHash(settings)
        return [network.name, found ?? known] as const
      }),
    )
    const found = Object.fromEntries(hashes.filter(([, hash]) => hash !== undefined)) as StartHashes
    if (!isReader) await keep(sql, networks, found)
    return found
  })
}

async function askStartHash(settings: NetworkSettings): Promise<string | undefined> {
  const blockNumber = BigInt(settings.deployment.startBlock)
  const block = await openReader(settings)
    .getBlock({ blockNumber })
    .catch(() => undefined)
  return block?.hash
}

async function readKept(sql: Database): Promise<Map<string, string>> {
  const [{ exists }] = await sql<[{ exists: boolean }]>`
    select to_regclass(${`${schema}.start_block`}) is not null as exists`
  if (!exists) return new Map()
  const rows = await sql<{ chainId: string; number: string; hash: string }[]>`
    select chain_id as "chainId", number, hash from ${sql(schema)}.start_block`
  return new Map(rows.map(({ chainId, number, hash }) => [keyOf(chainId, number), hash]))
}

async function keep(sql: Database, networks: readonly NetworkSettings[], hashes: StartHashes): Promise<void> {
  await sql`create schema if not exists ${sql(schema)}`
  await sql`create table if not exists ${sql(schema)}.start_block (
    chain_id bigint not null, number bigint not null, hash text not null, primary key (chain_id, number))`
  for (const { network, deployment } of networks) {
    const hash = hashes[network.name]
    if (hash === undefined) continue
    await sql`
      insert into ${sql(schema)}.start_block (chain_id, number, hash)
      values (${network.chainId}, ${deployment.startBlock}, ${hash})
      on conflict (chain_id, number) do update set hash = excluded.hash`
  }
}

/** Deletes the stored hashes for a rebuild, so that the next start reads the hashes from the chains again. */
export async function forgetStartHashes(sql: Queryable, chainIds: readonly number[]): Promise<void> {
  const [row] = await sql<{ exists: boolean }[]>`
    select to_regclass(${`${schema}.start_block`}) is not null as exists`
  if (row?.exists) await sql`delete from ${sql(schema)}.start_block where chain_id in ${sql([...chainIds])}`
}

function keyOf(chainId: number | string, blockNumber: number | string): string {
  return `${chainId} ${blockNumber}`
}
