import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import postgres from 'postgres'
import type { Hex } from 'viem'
import { describe, expect, test } from 'vitest'
import { startCutProxy } from '../../test/support/cutProxy.ts'
import { createTestDatabase } from '../../test/support/database.ts'
import { runCommand } from '../../test/support/processes.ts'
import { batchSettled, transfer } from '../src/receipt.ts'
import {
  platformWallet,
  providerA,
  settleOne,
  startTestChain,
  startTestIndexer,
  type TestIndex,
  trackRunning,
  until,
} from './harness.ts'

const { track, end, forget } = trackRunning()

/** A node that answers null to some calls. */
async function startProxy(target: string, hides: (call: { method: string }) => boolean) {
  const server = createServer(async (request, response) => {
    const body = await text(request)
    const call = JSON.parse(body) as { id: number; method: string }
    const answer = hides(call)
      ? JSON.stringify({ jsonrpc: '2.0', id: call.id, result: null })
      : await fetch(target, { method: 'POST', headers: { 'content-type': 'application/json' }, body }).then(
          (reply) => reply.text(),
        )
    response.setHeader('content-type', 'application/json').end(answer)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

async function readBatches({ sql }: TestIndex) {
  return sql`select chain_id, sequence, provider_total from indexer.batch order by chain_id, sequence`
}

/** Ponder locks all tables to drop its triggers, at its start and in a reorg; a reader in its way reads once more. */
function ignoreDeadlock(error: { code?: string }): never[] {
  if (error.code === '40P01' || error.code === '55P03') return []
  throw error
}

/** What readers depend on beyond the tables: database indexes and views, as Postgres numbers them. */
async function readRelations({ sql, schema }: TestIndex) {
  return sql`
    select oid, relname from pg_class
    where relnamespace in (to_regnamespace(${schema}), to_regnamespace('indexer')) and relkind in ('i', 'v')
    order by oid`
}

/** Reads block and rows all the time, in one statement and so in one snapshot. */
async function watchViews(databaseUrl: string) {
  // It gives way before Postgres looks for deadlocks (after 1 s), or Postgres would end Ponder.
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {}, connection: { lock_timeout: 500 } })
  const seen: { block: bigint; batches: number }[] = []
  let isWatching = true
  const watching = (async () => {
    while (isWatching) {
      const [row] = await sql<{ block: string; batches: number }[]>`
        select substring(latest_checkpoint, 27, 16) as block,
          (select count(*)::integer from indexer.batch) as batches
        from indexer._ponder_checkpoint`.catch(ignoreDeadlock)
      if (row) seen.push({ block: BigInt(row.block), batches: row.batches })
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
  })()
  watching.catch(() => {}) // whoever stops it hears of it
  const stop = async () => {
    isWatching = false
    await watching.finally(() => sql.end())
    return seen
  }
  return { stop, [Symbol.asyncDispose]: async () => void (await stop().catch(() => {})) }
}

async function readPaid({ sql }: TestIndex) {
  const rows = await sql<{ value: bigint }[]>`
    select value from indexer.authorization where recipient = ${providerA} order by value`
  return rows.map(({ value }) => value)
}

/** The command of docs/indexer.md, word for word. */
async function runDocumentedRebuild(env: Record<string, string>): Promise<void> {
  const page = await readFile(new URL('../../docs/indexer.md', import.meta.url), 'utf8')
  const [, section] = page.split('**A reorg deeper than Ponder')
  const [, script, ...args] = /^node (\S+) (.*)$/m.exec(section ?? '')?.[0].split(' ') ?? []
  if (!script) throw new Error('docs/indexer.md names no command')
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...args], {
    env: { ...process.env, ...env },
  })
  expect(stdout).toContain('what was kept of base')
}

describe('restarts', () => {
  test('behavior: stopped or killed, readers always have the views and no checkpoint without its rows; what was settled meanwhile is found, once; and so it is when its connections fall silent', async () => {
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
      // Neither the database indexes nor the views were made anew.
      expect(await readRelations(index)).toEqual(relations)
    }
    expect(await readBatches(index)).toEqual([
      { chain_id: 31337, sequence: 1, provider_total: 100n },
      { chain_id: 31337, sequence: 2, provider_total: 200n },
      { chain_id: 31337, sequence: 3, provider_total: 200n },
      { chain_id: 31337, sequence: 4, provider_total: 200n },
    ])
    expect(await readPaid(index)).toEqual([100n, 200n, 200n, 200n])

    // A failover without a reset: new connections work, and nothing ends the old ones.
    proxy.abandon()
    const { blockNumber } = await settleOne(chain, 300n)
    await index.untilIndexed(31337, blockNumber)
    expect(await readPaid(index)).toEqual([100n, 200n, 200n, 200n, 300n])
    expect(process.kill(index.pid, 0)).toBe(true)
  })

  test('behavior: a new version beside the old one: the views move when it has caught up, without a gap', async () => {
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
    // Nor can it be dropped while one runs.
    const { dropIndex } = await import('../chainData.ts')
    await expect(dropIndex(databaseUrl, next.schema, [31337])).rejects.toThrow('in use by a running indexer')
  })

  test('behavior: a local chain started anew under the same id leaves no rows of the old one', async () => {
    const databaseUrl = await createTestDatabase()
    const old = await track(startTestChain())
    const first = await track(startTestIndexer(databaseUrl, [old]))
    await settleOne(old, 100n)
    const { blockNumber } = await settleOne(old, 200n)
    // Past Ponder's finality, so that it keeps what it has read.
    for (let i = 0; i < 35; i++) await old.client.mine({ blocks: 1 })
    await first.untilIndexed(31337, blockNumber + 35n)
    await end(first)
    const again = await track(startTestIndexer(databaseUrl, [old])) // reads the past, and caches it
    await end(again)
    await end(old)

    const chain = await track(startTestChain())
    for (let i = 0; i < 35; i++) await chain.client.mine({ blocks: 1 })
    const second = await track(startTestIndexer(databaseUrl, [chain]))
    expect(second.schema).not.toBe(first.schema)
    expect(await readBatches(second)).toEqual([])
    const receipt = await settleOne(chain, 300n)
    await second.untilIndexed(31337, receipt.blockNumber)
    expect(await readBatches(second)).toEqual([{ chain_id: 31337, sequence: 1, provider_total: 300n }])
  })
})

describe('several chains', () => {
  test('behavior: one instance indexes two, each with its own sequence, and the L1 fee where there is one', async () => {
    const [local, base] = await Promise.all([
      track(startTestChain()),
      track(startTestChain({ network: 'base' })),
    ])
    const index = await track(startTestIndexer(await createTestDatabase(), [local, base]))
    await settleOne(local, 100n)
    const onBase = await settleOne(base, 200n)
    const { blockNumber } = await settleOne(local, 300n)
    await index.untilIndexed(31337, blockNumber)
    await index.untilIndexed(8453, onBase.blockNumber)
    expect(await readBatches(index)).toEqual([
      { chain_id: 8453, sequence: 1, provider_total: 200n },
      { chain_id: 31337, sequence: 1, provider_total: 100n },
      { chain_id: 31337, sequence: 2, provider_total: 300n },
    ])
    const { l1Fee } = (await base.client.getTransactionReceipt({ hash: onBase.transactionHash })) as {
      l1Fee?: Hex
    }
    const [row] = await index.sql`select l1_fee from indexer.batch where chain_id = 8453`
    expect(row?.l1_fee).toBe(BigInt(l1Fee ?? -1))
  })
})

describe('the chain is not the one that was indexed', () => {
  test('error: on a real network it refuses to start, and a rebuild heals it', async () => {
    const databaseUrl = await createTestDatabase()
    const old = await track(startTestChain({ network: 'base' }))
    await settleOne(old, 100n)
    const direct = await old.signPayment(await old.createBuyer(), providerA, 200n, 1n)
    await old.send(old.usdc, old.encodeTransfer(direct.fee))
    for (let i = 0; i < 35; i++) await old.client.mine({ blocks: 1 })
    const first = await track(startTestIndexer(databaseUrl, [old]))
    expect(await readBatches(first)).toMatchObject([{ provider_total: 100n }])
    expect(await first.sql`select nonce from indexer.authorization where batch_log_index is null`).toEqual([
      { nonce: direct.fee.nonce },
    ])
    // Of a batch's transaction Ponder reads only the batch's own event, and never any calldata.
    expect(
      await first.sql`select l.topic0, t.input from ponder_sync.logs l
        join ponder_sync.transactions t using (chain_id, block_number, transaction_index)
        order by l.block_number, l.log_index`,
    ).toEqual([
      { topic0: batchSettled, input: '0x' },
      { topic0: transfer, input: '0x' },
    ])
    await end(first)
    await end(old)

    const chain = await track(startTestChain({ network: 'base' }))
    for (let i = 0; i < 35; i++) await chain.client.mine({ blocks: 1 })
    await expect(startTestIndexer(databaseUrl, [chain])).rejects.toThrow(
      /base, ponder_sync: block \d+ was 0x/,
    )
    await runDocumentedRebuild({
      DATABASE_URL: databaseUrl,
      RPC_URL_BASE: chain.url,
      PLATFORM_WALLET: platformWallet,
      DEPLOYMENTS_FILE: await chain.writeDeployments(),
    })
    const index = await track(startTestIndexer(databaseUrl, [chain]))
    expect(await readBatches(index)).toEqual([])
  })

  test('error: a reorg deeper than Ponder’s finality ends it, each start refuses, and the documented rebuild heals it', async () => {
    const databaseUrl = await createTestDatabase()
    const chain = await track(startTestChain({ network: 'base' }))
    const kept = await settleOne(chain, 100n)
    const buyer = await chain.createBuyer()
    const twice = await chain.signPayment(buyer, providerA, 200n, 1n)
    const gone = await chain.signPayment(buyer, providerA, 300n, 1n)
    const index = await track(startTestIndexer(databaseUrl, [chain]))
    await index.untilIndexed(8453, kept.blockNumber)
    const snapshot = await chain.client.snapshot()

    const { blockNumber } = await chain.settle([twice, gone])
    for (let i = 0; i < 65; i++) await chain.client.mine({ blocks: 1 }) // final once there are twice thirty
    await index.untilIndexed(8453, blockNumber + 65n)
    expect(await readBatches(index)).toMatchObject([{ provider_total: 100n }, { provider_total: 500n }])
    await chain.client.revert({ id: snapshot })
    const again = await chain.settle([twice])
    for (let i = 0; i < 70; i++) await chain.client.mine({ blocks: 1 })
    await index.exited
    forget(index)
    await index.sql.end()

    await expect(startTestIndexer(databaseUrl, [chain])).rejects.toThrow(
      /deeper than Ponder's finality:\nbase, /,
    )
    await runDocumentedRebuild({
      DATABASE_URL: databaseUrl,
      RPC_URL_BASE: chain.url,
      PLATFORM_WALLET: platformWallet,
      DEPLOYMENTS_FILE: await chain.writeDeployments(),
    })
    const rebuilt = await track(startTestIndexer(databaseUrl, [chain]))
    await rebuilt.untilIndexed(8453, again.blockNumber)
    expect(await readBatches(rebuilt)).toEqual([
      { chain_id: 8453, sequence: 1, provider_total: 100n },
      { chain_id: 8453, sequence: 2, provider_total: 200n },
    ])
    expect(await readPaid(rebuilt)).toEqual([100n, 200n])
  })
})

test('behavior: a node that is behind is no reason to set a batch aside while another has its receipt', async () => {
  const chain = await track(startTestChain())
  const behind = await track(startProxy(chain.url, ({ method }) => method === 'eth_getTransactionReceipt'))
  const nodes = { ...chain, url: `${behind.url},${chain.url}` }
  const index = await track(startTestIndexer(await createTestDatabase(), [nodes]))
  const { blockNumber } = await settleOne(chain, 100n)
  await index.untilIndexed(31337, blockNumber)
  expect(await readBatches(index)).toEqual([{ chain_id: 31337, sequence: 1, provider_total: 100n }])
  expect(await index.sql`select * from indexer.quarantine`).toEqual([])
})

describe('it can’t start', () => {
  test('error: a taken port is named, with the variable that changes it', async () => {
    const chain = await track(startTestChain())
    const databaseUrl = await createTestDatabase()
    await expect(startTestIndexer(databaseUrl, [chain], { port: chain.port })).rejects.toThrow(
      `port ${chain.port} is in use: set INDEXER_PORT`,
    )
  })

  test('error: Ponder’s own words come with the rejection', async () => {
    const chain = await track(startTestChain())
    await expect(
      startTestIndexer('postgres://nobody:x@127.0.0.1:1/none', [chain], { schema: 'some' }),
    ).rejects.toThrow(/ECONNREFUSED/)
  })
})

test('behavior: npm run indexer ends on SIGTERM, at once, with nothing left', async () => {
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
