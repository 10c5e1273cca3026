/** How long readers wait for the index when its process ends and starts again, by how much is indexed. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import postgres from 'postgres'
import { type Address, createPublicClient, http } from 'viem'
import { startIndexer } from '../indexer/launch.ts'
import { startLocalChain } from '../local/chain/startLocalChain.ts'
import { startPostgres } from '../local/stack/postgres.ts'
import { median } from './support/statistics.ts'

const platform: Address = '0x00000000000000000000000000000000000fee00'
const perBatch = 150

export async function run(args: string[]): Promise<object> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      authorizations: { type: 'string', default: '2000000' },
      rounds: { type: 'string', default: '3' },
    },
  })
  const say = (line: string) => values.json || console.log(line)
  const [authorizations, rounds] = [Number(values.authorizations), Number(values.rounds)]
  const server = await startPostgres()
  const chain = await startLocalChain({ blockTimeMs: 1_000 })
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-bench-'))
  try {
    const databaseUrl = await server.createDatabase('restart')
    const deploymentsFile = join(folder, 'deployments.json')
    await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
    const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
    const node = createPublicClient({ transport: http(chain.url) })
    /** Seconds from the start of the process until readers see the block that was the chain's head at that moment. */
    const start = async () => {
      const began = performance.now()
      const head = await node.getBlockNumber({ cacheTime: 0 })
      const indexer = await startIndexer({
        databaseUrl,
        rpcUrls: { localhost: chain.url },
        platformWallets: [platform],
        deploymentsFile,
      })
      await indexer.ready
      const readBlock = async () => {
        const [row] = await sql<[{ block: string }]>`
          select substring(latest_checkpoint, 27, 16) as block from indexer._ponder_checkpoint`
        return BigInt(row.block)
      }
      while ((await readBlock()) < head) await new Promise((resolve) => setTimeout(resolve, 50))
      return { indexer, seconds: Math.round((performance.now() - began) / 100) / 10 }
    }

    const first = await start()
    await first.indexer.close()
    say(`filling in ${authorizations} authorizations`)
    await fill(sql, first.indexer.schema, authorizations)
    let running = await start()
    say(`database indexes built once, with the start: ${running.seconds} s`)
    // In turns: neither ending always finds the colder caches.
    const seconds: Record<'stop' | 'kill', number[]> = { stop: [], kill: [] }
    for (let round = 1; round <= rounds; round += 1) {
      await running.indexer.close()
      running = await start()
      seconds.stop.push(running.seconds)
      say(`after a stop: ${running.seconds} s`)
      process.kill(running.indexer.pid, 'SIGKILL')
      await running.indexer.exited
      running = await start()
      seconds.kill.push(running.seconds)
      say(`after SIGKILL: ${running.seconds} s`)
    }
    await running.indexer.close()
    const [{ rows }] = await sql<
      [{ rows: number }]
    >`select count(*)::integer as rows from indexer.authorization`
    if (rows !== authorizations) throw new Error(`the index holds ${rows} authorizations`)
    await sql.end()
    return {
      authorizations,
      empty: first.seconds,
      afterStop: median(seconds.stop),
      afterKill: median(seconds.kill),
      ...seconds,
    }
  } finally {
    await chain.close()
    await server.close()
    await rm(folder, { recursive: true, force: true })
  }
}

/** Rows as Ponder would have written them, without its triggers; the indexes beside the keys are left to the next start. */
async function fill(sql: postgres.Sql, schema: string, authorizations: number): Promise<void> {
  await sql`set session_replication_role = replica`
  const indexes = await sql<{ name: string }[]>`
    select indexname as name from pg_indexes where schemaname = ${schema} and indexname ~ '_by_[0-9]+$'`
  for (const { name } of indexes) await sql`drop index ${sql(schema)}.${sql(name)}`
  await sql`comment on schema indexer is null`
  const text = (what: string) => sql.unsafe(`'0x' || md5('${what} ' || b) || md5(b::text)`)
  await sql`
    insert into ${sql(schema)}.authorization (chain_id, token, authorizer, nonce, state, recipient, value, tx_hash,
      log_index, block_number, block_hash, block_time, batch_log_index)
    select 31337, ${platform}, '0x' || left(md5('from ' || i % 5000) || md5('f' || i % 5000), 40),
      '0x' || md5('nonce ' || i) || md5(i::text), 'used', '0x' || left(md5('to ' || i % 300) || md5('t' || i % 300), 40),
      47500, ${text('tx')}, 2 * (i % ${perBatch}), 1, ${text('block')}, 1700000000 + b, 300
    from (select i, i / ${perBatch} as b from generate_series(1, ${authorizations}) i) s order by 4`
  await sql`
    insert into ${sql(schema)}.batch (chain_id, tx_hash, log_index, sequence, batch_id, keeper, token, trigger,
      authorizations, payment_count, provider_total, fee_total, outcomes, block_number, block_hash, block_time, gas_used,
      effective_gas_price)
    select 31337, ${text('tx')}, 300, b, ${text('id')}, ${platform}, ${platform}, 1, ${perBatch}, ${perBatch / 2},
      3562500, 187500, '0x' || repeat('11', ${perBatch / 2}), 1, ${text('block')}, 1700000000 + b, 9000000, 1000000
    from generate_series(0, ${Math.floor(authorizations / perBatch)}) b`
  await sql`
    insert into ${sql(schema)}.batch_recipient (chain_id, tx_hash, log_index, recipient, sequence, payment_count, total,
      block_number, block_time)
    select 31337, tx_hash, 300, '0x' || left(md5('to ' || r) || md5('t' || r), 40), sequence, 7, 332500, 1, block_time
    from ${sql(schema)}.batch, generate_series(1, 10) r`
  await sql`reset session_replication_role`
  await sql`vacuum analyze`
}
