import { expect, test } from 'vitest'
import { startCutProxy } from '../../test/support/cutProxy.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import { settleOne, startTestChain, startTestIndexer, type TestIndex, trackRunning } from './harness.ts'
import { readBatches, readPaid, watchViews } from './views.ts'

const { track, end } = trackRunning()

/** Returns Postgres' ids of the database indexes and views, on which readers depend in addition to the tables. */
async function readRelations({ sql, schema }: TestIndex) {
  return sql`
    select oid, relname from pg_class
    where relnamespace in (to_regnamespace(${schema}), to_regnamespace('indexer')) and relkind in ('i', 'v')
    order by oid`
}

test('behavior: after a stop, a kill or a silent connection, the views keep their rows, never show a checkpoint before its batches, and get each new batch once', async () => {
  const chain = await track(startTestChain())
  const databaseUrl = await createTestDatabase()
  const proxied = new URL(databaseUrl)
  const proxy = await track(startCutProxy(proxied.hostname, Number(proxied.port)))
  proxied.hostname = '127.0.0.1'
  proxied.port = String(proxy.port)
  let index = await track(startTestIndexer(databaseUrl, [chain]))
  const settled = [(await settleOne(chain, 100n)).blockNumber]
  await index.untilIndexed(31337, settled[0] ?? 0n)
  const { schema } = index
  const relations = await readRelations(index)
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGKILL'] as const) {
    await using reader = await watchViews(databaseUrl)
    process.kill(index.pid, signal)
    expect(await index.exited).toBe(signal === 'SIGKILL' ? null : 0)
    await end(index)
    const { blockNumber } = await settleOne(chain, 200n)
    settled.push(blockNumber)

    const lines: string[] = []
    const onLog = (line: string) => void lines.push(line)
    index = await track(startTestIndexer(databaseUrl, [chain], { onLog, databaseUrl: proxied.href }))
    expect(index.schema).toBe(schema)
    await index.untilIndexed(31337, blockNumber)
    const seen = await reader.stop()
    const due = (head: bigint) => settled.filter((one) => one <= head).length
    expect(seen.filter(({ block, batches }) => batches < due(block))).toEqual([])
    expect(lines.filter((line) => line.includes('locked'))).toEqual([])
    // Neither the database indexes nor the views were created again.
    expect(await readRelations(index)).toEqual(relations)
  }
  expect(await readBatches(index)).toEqual([
    { chain_id: 31337, sequence: 1, provider_total: 100n },
    { chain_id: 31337, sequence: 2, provider_total: 200n },
    { chain_id: 31337, sequence: 3, provider_total: 200n },
    { chain_id: 31337, sequence: 4, provider_total: 200n },
  ])
  expect(await readPaid(index)).toEqual([100n, 200n, 200n, 200n])

  // Simulates a failover without a reset: new connections work, but the old ones aren't closed.
  proxy.abandon()
  const { blockNumber } = await settleOne(chain, 300n)
  await index.untilIndexed(31337, blockNumber)
  expect(await readPaid(index)).toEqual([100n, 200n, 200n, 200n, 300n])
  expect(process.kill(index.pid, 0)).toBe(true)
})
