import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import type { IndexerOptions } from '@tollkeeper/indexer/config'
import { startIndexer } from '@tollkeeper/indexer/launch'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { type Loop, repeat } from '@tollkeeper/runtime/repeat'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { createTestClient, http, publicActions, walletActions } from 'viem'
import { hardhat } from 'viem/chains'
import { devAccount, devPrivateKey } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { type PostgresOptions, startPostgres } from '../../apps/devstack/stack/postgres.ts'
import { Service } from '../../apps/devstack/stack/service.ts'
import { type Buyer, createBuyers, platform } from '../data/signPayments.ts'
import { cpuTime, parentOf } from './cpuTime.ts'

export type BenchEnv = Awaited<ReturnType<typeof openBenchEnv>>
type Program = { name: string; program: string[]; env?: Record<string, string>; portVariable?: string }

/**
 * Opens the environment of benches: a durable Postgres, and a local chain that has the contracts and mines each transaction immediately.
 * When it is disposed, it ends everything that was started or deferred, in reverse order: `await using benchEnv = await openBenchEnv()`.
 */
export async function openBenchEnv(options: PostgresOptions = {}) {
  await using started = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-bench-'))
  started.defer(() => rm(folder, { recursive: true, force: true }))
  const postgres = await startPostgres(options)
  started.defer(postgres.close)
  const chain = await startLocalChain({ blockTimeMs: 0 })
  started.defer(chain.close)
  const deployment = deploymentOf(chain)
  const deploymentsFile = join(folder, 'deployments.json')
  await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
  const [served] = await openServedNetworks([
    { network: networks.localhost, deployment, rpcUrls: [chain.url] },
  ])
  if (!served) throw new Error('the local chain is not served')
  const stack = started.move()

  /** The environment that each of our processes reads. */
  const env = {
    NETWORKS: 'localhost',
    RPC_URL_LOCALHOST: chain.url,
    DEPLOYMENTS_FILE: deploymentsFile,
    PLATFORM_WALLET: platform,
    LOG_LEVEL: 'info',
  }

  /** Starts a program as a separate process, and passes it a free port in `portVariable`. */
  async function startService({ name, program, env = {}, portVariable = 'PORT' }: Program) {
    const port = await reservePort()
    const service = new Service({
      name,
      program,
      env: { ...env, [portVariable]: String(port) },
      url: `http://${loopback}:${port}`,
      readyPath: '/healthz',
      logFile: join(folder, `${name}.log`),
    })
    stack.defer(() => service.stop())
    await service.start()
    const pid = () => service.pid ?? 0
    return { service, port, pid, cpu: () => cpuTime(pid()) }
  }

  return {
    folder,
    postgres,
    chain,
    deployment,
    deploymentsFile,
    served,
    env,
    defer: (close: () => Promise<unknown>) => stack.defer(async () => void (await close())),

    /** Starts Ponder without waiting until it is ready. */
    async startIndexer(databaseUrl: string, options: Partial<IndexerOptions> = {}) {
      const network = { rpcUrls: { localhost: chain.url }, platformWallets: [platform], deploymentsFile }
      const indexer = await startIndexer({ databaseUrl, ...network, ...options })
      stack.defer(indexer.close)
      return indexer
    },

    startService,

    /** Starts a program of bench/gateway. */
    startServer: (file: string, args: string[] = [], name = file.replace('.ts', '')) =>
      startService({ name, program: [join(import.meta.dirname, '../gateway', file), ...args] }),

    /** Opens a database without time limits for statements. */
    open(url: string, max = 5): Database {
      const database = openDatabase({ url, max, applicationName: 'bench', limited: false })
      stack.defer(() => database.end({ timeout: 1 }))
      return database
    },

    /** Creates buyers with USDC. */
    async fundBuyers(count: number): Promise<Buyer[]> {
      const buyers = createBuyers(count)
      const addresses = buyers.map(({ address }) => address)
      await chain.mintUsdc(addresses, 1_000_000_000_000n)
      return buyers
    },

    /** Starts a keeper with this number of wallets. */
    startKeeper: (databaseUrl: string, wallets: number, settings: Record<string, string> = {}) => {
      const keys = Array.from({ length: wallets }, (_, wallet) => devPrivateKey(10 + wallet))
      const own = { ...env, DATABASE_URL: databaseUrl, KEEPER_PRIVATE_KEYS: keys.join(','), ...settings }
      const program = ['keeper/main.ts']
      return startService({ name: 'keeper', program, portVariable: 'KEEPER_PORT', env: own })
    },

    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  }
}

/** Repeats a step until it is stopped. If a step fails, the bench ends. */
export function watch(look: () => Promise<unknown>): Loop {
  const onError = (error: unknown) => {
    throw error
  }
  return repeat({ name: 'watch', everyMs: 20, step: look, onError })
}

/** Creates a client of the local chain that can send transactions. */
export function openSender({ url }: LocalChain) {
  const options = { mode: 'hardhat', chain: hardhat, transport: http(url), pollingInterval: 5 } as const
  return createTestClient({ ...options, account: devAccount(1) })
    .extend(publicActions)
    .extend(walletActions)
}

export function deploymentOf(chain: LocalChain) {
  const { localhost } = chain.deployments
  if (localhost === undefined) throw new Error('the local chain has no deployment')
  return localhost
}

/** Returns the id of the Postgres server's main process for a connection. All sessions are children of it. */
export async function findPostmaster(sql: Database): Promise<number> {
  const [backend] = await sql<[{ pid: number }]>`select pg_backend_pid() as pid`
  return parentOf(backend.pid)
}

/** Returns the number of bytes that a Postgres server has written to its log so far. */
export async function readWal(sql: Database): Promise<number> {
  const [row] = await sql<[{ bytes: number }]>`
    select (pg_current_wal_insert_lsn() - '0/0')::float8 as bytes`
  return row.bytes
}

/** Returns the number of writing transactions so far: Postgres assigns a transaction id only when a transaction writes. */
export async function countWrites(sql: Database): Promise<number> {
  const [row] = await sql<[{ next: number }]>`
    select pg_snapshot_xmax(pg_current_snapshot())::text::float8 as next`
  return row.next
}

/** Returns the maximum memory that a process ever had, in MiB. */
export async function readPeakRssMb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Math.round(Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) / 1024)
}
