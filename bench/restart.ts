// Measures how long readers wait for an index with millions of rows when the indexer ends and starts again.

import type { Database } from '@tollkeeper/ledger/store/database'
import { until } from '../test/support/until.ts'
import { platform } from './data/signPayments.ts'
import { openBenchEnv } from './support/benchEnv.ts'
import { atMost, type Goals } from './support/goals.ts'
import { inTurns, median, round1, type Say } from './support/statistics.ts'

/** Number of authorizations per batch. */
const perBatch = 150

export const options = { authorizations: 2_000_000, rounds: 3 }

export const figures = () => ['authorizations', 'empty', 'afterStop', 'afterKill', 'stop', 'kill']

/** The goals, in seconds. */
export const goals = (): Goals => ({ afterStop: atMost(1), afterKill: atMost(1) })

export async function run({ authorizations, rounds }: typeof options, say: Say): Promise<object> {
  await using benchEnv = await openBenchEnv()
  await benchEnv.chain.setMining(1_000)
  const databaseUrl = await benchEnv.postgres.createDatabase('restart')
  const sql = benchEnv.open(databaseUrl, 1)
  /** Starts the indexer, and measures the seconds until readers see the block that was the chain's head at the start. */
  const start = async () => {
    const began = performance.now()
    const head = await benchEnv.served.client.getBlockNumber({ cacheTime: 0 })
    const indexer = await benchEnv.startIndexer(databaseUrl)
    await indexer.ready
    const isSeen = async () => {
      const [row] = await sql<[{ block: string }]>`
        select substring(latest_checkpoint, 27, 16) as block from indexer._ponder_checkpoint`
      return BigInt(row.block) >= head
    }
    await until('readers see the head', isSeen)
    return { indexer, seconds: round1((performance.now() - began) / 1000) }
  }

  const first = await start()
  await first.indexer.close()
  say(`filling in ${authorizations} authorizations`)
  await fill(sql, first.indexer.schema, authorizations)
  let running = await start()
  say(`start that builds the database indexes: ${running.seconds} s`)
  // The two endings take turns, so that both find equally warm caches.
  const seconds = await inTurns(['stop', 'kill'], { counted: rounds, say }, async (ending) => {
    if (ending === 'stop') await running.indexer.close()
    else {
      process.kill(running.indexer.pid, 'SIGKILL')
      await running.indexer.exited
    }
    running = await start()
    return running.seconds
  })
  const [row] = await sql<[{ count: number }]>`select count(*)::int from indexer.authorization`
  if (row.count !== authorizations) throw new Error(`the index holds ${row.count} authorizations`)
  const { stop, kill } = seconds
  return {
    authorizations,
    empty: first.seconds,
    afterStop: median(stop),
    afterKill: median(kill),
    ...seconds,
  }
}

/** Writes rows like Ponder, but without its triggers. The next start builds the indexes, except for the keys. */
async function fill(sql: Database, schema: string, authorizations: number): Promise<void> {
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
