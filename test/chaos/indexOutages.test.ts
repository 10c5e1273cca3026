import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { migrateAt } from '@tollkeeper/ledger/store/migrate'
import { reservePort } from '@tollkeeper/runtime/port'
import postgres from 'postgres'
import { afterEach, expect, test } from 'vitest'
import { type Postgres, startPostgres } from '../../apps/devstack/stack/postgres.ts'
import { platformWallet, settleOne, startTestChain } from '../../indexer/test/harness.ts'
import { type CutProxy, startCutProxy } from '../support/cutProxy.ts'
import { walletKey } from '../support/keeperStack.ts'
import { killAll, type RunningCommand, runCommand } from '../support/processes.ts'
import { until } from '../support/until.ts'

// Restarts a real Postgres while the real indexer builds its tables for the first time, or publishes its views. During the outage, the
// keeper's `/readyz` reports that there is no index. Afterwards the keeper and the indexer recover by themselves.

const undo: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each()
})

/** Opens a Postgres that can be restarted with its data. */
async function openServer() {
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-outage-'))
  const port = await reservePort()
  const start = () => startPostgres({ folder, port, fast: true })
  let server: Postgres = await start()
  undo.push(async () => {
    await server.close()
    await rm(folder, { recursive: true, force: true })
  })
  return {
    url: await server.createDatabase('tollkeeper'),
    restart: async () => {
      await server.close()
      server = await start()
    },
  }
}

function run(program: string, env: Record<string, string>): RunningCommand {
  const running = runCommand([process.execPath, program], env)
  undo.push(() => killAll(running))
  return running
}

/** Locks a table until the session ends. A restart of Postgres ends the session. */
async function lock(sql: postgres.Sql, table: string): Promise<void> {
  const session = await sql.reserve()
  await session`begin`
  await session`lock table ${session(table)} in access exclusive mode`
}

/** Returns the schema in which Ponder builds its tables; undefined until they exist. */
async function findBuilding(sql: postgres.Sql): Promise<string | undefined> {
  const [row] = await sql<{ schema: string }[]>`
    select schemaname as schema from pg_tables where schemaname like 'indexer\\_%' and tablename = 'batch'`
  return row?.schema
}

type Holding = {
  sql: postgres.Sql
  /** Proxy between the indexer and the chain. */
  rpc: CutProxy
  startIndexer: () => void
}

/** Each outage starts the indexer and blocks it at a table that a session has locked. */
const outages: { when: string; isReady: boolean; begin: (holding: Holding) => Promise<void> }[] = [
  {
    when: 'builds its tables',
    isReady: false,
    begin: async ({ sql, rpc, startIndexer }) => {
      startIndexer()
      let schema: string | undefined
      await until('Ponder has created its tables', async () => {
        schema = await findBuilding(sql)
        return schema !== undefined
      })
      // The indexer must not read a block before its batch table is locked.
      rpc.stall()
      await lock(sql, `${schema}.batch`)
      rpc.mend()
    },
  },
  {
    when: 'publishes its views',
    isReady: true,
    begin: async ({ sql, startIndexer }) => {
      // Creates a schema like one that an earlier attempt left behind. The launcher must drop this schema before it moves the views.
      await sql`create schema indexer_next`
      await sql`create table indexer_next.held ()`
      await lock(sql, 'indexer_next.held')
      startIndexer()
    },
  },
]

test.each(outages)(
  'behavior: if Postgres restarts while the indexer $when, the indexer recovers, no payment is lost, and the keeper is ready only if the views exist',
  async ({ isReady, begin }) => {
    const chain = await startTestChain()
    undo.push(() => chain.close())
    const { blockNumber } = await settleOne(chain, 100n)
    const server = await openServer()
    await migrateAt(server.url)
    const at = new URL(chain.url)
    const rpc = await startCutProxy(at.hostname, Number(at.port))
    undo.push(() => rpc.close())
    const sql = postgres(server.url, { max: 3, onnotice: () => {} })
    undo.push(() => sql.end({ timeout: 1 }))
    const env = {
      DATABASE_URL: server.url,
      NETWORKS: chain.network,
      DEPLOYMENTS_FILE: await chain.writeDeployments(),
      PLATFORM_WALLET: platformWallet,
    }
    const port = await reservePort()
    let indexer: RunningCommand | undefined
    const startIndexer = () => {
      const own = { RPC_URL_LOCALHOST: `http://127.0.0.1:${rpc.port}`, INDEXER_PORT: String(port) }
      indexer = run('indexer/main.ts', { ...env, ...own })
    }
    const keeper = run('keeper/main.ts', {
      ...env,
      RPC_URL_LOCALHOST: chain.url,
      KEEPER_PRIVATE_KEYS: walletKey(0),
      KEEPER_PORT: '0',
      ETH_USD: '3000',
    })
    const listening = JSON.parse(await keeper.line(/listening/)) as { port: number }
    const readReady = async () => {
      const answer = await fetch(`http://127.0.0.1:${listening.port}/readyz`)
      const { checks } = (await answer.json()) as { checks: { name: string; ok: boolean }[] }
      return { status: answer.status, failing: checks.filter(({ ok }) => !ok).map(({ name }) => name) }
    }
    const isIndexReady = async () =>
      (await fetch(`http://127.0.0.1:${port}/ready`).catch(() => undefined))?.ok === true
    const shown = async () => {
      const [row] = await sql<{ schema: string | null }[]>`
        select obj_description(to_regnamespace('indexer'), 'pg_namespace') as schema`
      return row?.schema ?? null
    }

    const requireRunning = () => {
      for (const running of [indexer, keeper])
        if (running?.child.exitCode !== null) throw new Error(`a process has ended:\n${running?.output()}`)
    }

    await begin({ sql, rpc, startIndexer })
    await until('the indexer waits for a lock', async () => {
      const waiting = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      return waiting.length > 0
    })
    expect(await isIndexReady()).toBe(isReady)
    expect(await readReady()).toMatchObject({
      status: 503,
      failing: expect.arrayContaining(['index localhost']),
    })
    const metrics = await (await fetch(`http://127.0.0.1:${listening.port}/metrics`)).text()
    // The alert IndexNotTrusted reads this metric.
    expect(metrics).toMatch(/^tollkeeper_index_behind\{network="localhost",reason="missing"\} 1$/m)
    await server.restart()
    await until(
      'the keeper has its database again',
      async () => !(await readReady()).failing.includes('database'),
    )
    await until('the views exist', async () => {
      requireRunning()
      const { failing } = await readReady()
      const isShown = (await shown()) !== null
      if (!isShown) expect(failing).toContain('index localhost')
      return isShown
    })
    await until('both are ready', async () => (await isIndexReady()) && (await readReady()).status === 200)
    const batches = await sql<{ block: string }[]>`select block_number::text as block from indexer.batch`
    expect(batches.map(({ block }) => BigInt(block))).toEqual([blockNumber])
    requireRunning()
  },
)
