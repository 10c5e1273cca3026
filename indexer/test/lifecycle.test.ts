import { describe, expect, test } from 'vitest'
import { createTestDatabase } from '../../test/support/database.ts'
import { runCommand } from '../../test/support/processes.ts'
import {
  platformWallet,
  providerA,
  settleOne,
  startTestChain,
  startTestIndexer,
  trackRunning,
  until,
} from './harness.ts'
import { watchViews } from './views.ts'

const { track, end } = trackRunning()

describe('restarts', () => {
  test('behavior: the views move without a gap from the old version’s index to the new version’s index once that has caught up', async () => {
    const chain = await track(startTestChain())
    const databaseUrl = await createTestDatabase()
    const old = await track(startTestIndexer(databaseUrl, [chain]))
    const { blockNumber } = await settleOne(chain, 100n)
    await old.untilIndexed(31337, blockNumber)
    await using reader = await watchViews(databaseUrl)

    const next = await track(
      startTestIndexer(databaseUrl, [chain], { platformWallets: [platformWallet, providerA] }),
    )
    expect(next.schema).not.toBe(old.schema)
    await end(old)
    const later = await settleOne(chain, 200n)
    await next.untilIndexed(31337, later.blockNumber)
    const seen = await reader.stop()
    for (const [i, { block, batches }] of seen.entries()) {
      expect(block).toBeGreaterThanOrEqual(seen[i - 1]?.block ?? blockNumber)
      expect(batches).toBeGreaterThanOrEqual(seen[i - 1]?.batches ?? 1)
    }
    const [shown] =
      await next.sql`select obj_description(to_regnamespace('indexer'), 'pg_namespace') as schema`
    expect(shown).toEqual({ schema: next.schema })
    expect(
      await next.sql`select nspname from pg_namespace where nspname like 'indexer!_former' escape '!'`,
    ).toEqual([])
    // A schema can't be dropped while an indexer uses it.
    const { dropIndex } = await import('../chainData.ts')
    await expect(dropIndex(databaseUrl, next.schema, [31337])).rejects.toThrow('in use by a running indexer')
  })
})

describe('a failed start', () => {
  test('error: names the port that is in use, and the variable that changes it', async () => {
    const chain = await track(startTestChain())
    const databaseUrl = await createTestDatabase()
    await expect(startTestIndexer(databaseUrl, [chain], { port: chain.port })).rejects.toThrow(
      `port ${chain.port} is in use: set INDEXER_PORT`,
    )
  })

  test('error: rejects with Ponder’s output', async () => {
    const chain = await track(startTestChain())
    await expect(
      startTestIndexer('postgres://nobody:x@127.0.0.1:1/none', [chain], { schema: 'some' }),
    ).rejects.toThrow(/ECONNREFUSED/)
  })
})

test('behavior: npm run indexer ends on SIGTERM immediately, and leaves no process', async () => {
  const chain = await track(startTestChain())
  const databaseUrl = await createTestDatabase()
  const command = runCommand([process.execPath, 'indexer/main.ts'], {
    DATABASE_URL: databaseUrl,
    NETWORKS: 'localhost',
    RPC_URL_LOCALHOST: chain.url,
    PLATFORM_WALLET: providerA,
    INDEXER_PORT: '0',
  })
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(await command.line(/\/graphql/))?.[0]
  await until(async () => (await fetch(`${url}/ready`).catch(() => undefined))?.status === 200)
  command.child.kill('SIGTERM')
  expect(await command.exited).toBe(0)
  await expect(fetch(`${url}/ready`)).rejects.toThrow()
})
