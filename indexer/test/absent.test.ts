import { reservePort } from '@tollkeeper/runtime/port'
import { expect, test } from 'vitest'
import { type CutProxy, startCutProxy } from '../../test/support/cutProxy.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import {
  indexedBlock,
  settleOne,
  startTestChain,
  startTestIndexer,
  type TestIndex,
  trackRunning,
} from './harness.ts'

const { track, end } = trackRunning()

const goneUrl = async () => `http://127.0.0.1:${await reservePort()}`

async function readTotals({ sql }: TestIndex): Promise<[number, bigint][]> {
  const rows = await sql<{ chain: number; total: bigint }[]>`
    select chain_id::integer as chain, provider_total as total from indexer.batch order by chain_id, sequence`
  return rows.map(({ chain, total }) => [chain, total])
}

test('behavior: starts while the first of two nodes is down', async () => {
  const chain = await track(startTestChain())
  const rpcUrls = { localhost: `${await goneUrl()},${chain.url}` }
  const { blockNumber } = await settleOne(chain, 100n)
  const index = await track(startTestIndexer(await createTestDatabase(), [chain], { rpcUrls }))
  await index.untilIndexed(31337, blockNumber)
  expect(await readTotals(index)).toEqual([[31337, 100n]])
})

test('error: rejects the start if no network answers', async () => {
  const chain = await track(startTestChain())
  const starting = startTestIndexer(await createTestDatabase(), [chain], {
    rpcUrls: { localhost: await goneUrl() },
  })
  await expect(starting).rejects.toThrow('no node of localhost answers')
})

test('behavior: indexes the other networks while one network is down, and indexes that network again once its node answers', async () => {
  const [local, base] = await Promise.all([
    track(startTestChain()),
    track(startTestChain({ network: 'base' })),
  ])
  const proxy: CutProxy = await track(startCutProxy('127.0.0.1', Number(new URL(base.url).port)))
  const databaseUrl = await createTestDatabase()
  const lines: string[] = []
  const start = () =>
    track(
      startTestIndexer(databaseUrl, [local, base], {
        rpcUrls: { localhost: local.url, base: `http://127.0.0.1:${proxy.port}` },
        retryMs: 50,
        onLog: (line) => lines.push(line),
      }),
    )
  const { blockNumber: early } = await settleOne(local, 100n)
  await settleOne(base, 200n)
  for (let i = 0; i < 35; i++) await base.client.mine({ blocks: 1 })

  // The network was never indexed and has no row, so readers treat its index as behind.
  proxy.cut()
  const without = await start()
  await without.untilIndexed(31337, early)
  expect(await readTotals(without)).toEqual([[31337, 100n]])
  expect(without.leftOut).toEqual(['base'])
  expect(lines.some((line) => line.includes('base is left out: none of its nodes answers'))).toBe(true)

  proxy.mend()
  await without.answersAgain
  await end(without)
  const both = await start()
  expect(both.leftOut).toEqual([])
  const { blockNumber: late } = await settleOne(base, 300n)
  // Each start removes the rows that aren't final, of every network, and reads their blocks again.
  await Promise.all([both.untilIndexed(8453, late), both.untilIndexed(31337, early)])
  expect(await readTotals(both)).toEqual([
    [8453, 200n],
    [8453, 300n],
    [31337, 100n],
  ])
  await end(both)

  // The network was indexed before, so its final rows stay visible, and its checkpoint is the last final block.
  proxy.cut()
  const { blockNumber: block } = await settleOne(local, 400n)
  const partly = await start()
  expect([partly.schema, partly.leftOut]).toEqual([both.schema, ['base']])
  await partly.untilIndexed(31337, block)
  expect(await readTotals(partly)).toEqual([
    [8453, 200n],
    [31337, 100n],
    [31337, 400n],
  ])
  expect(await indexedBlock(partly.sql, 8453)).toBeLessThan(late)

  proxy.mend()
  await partly.answersAgain
  await end(partly)
  const again = await start()
  expect([again.schema, again.leftOut]).toEqual([both.schema, []])
  await Promise.all([again.untilIndexed(8453, late), again.untilIndexed(31337, block)])
  expect(await readTotals(again)).toEqual([
    [8453, 200n],
    [8453, 300n],
    [31337, 100n],
    [31337, 400n],
  ])
})
