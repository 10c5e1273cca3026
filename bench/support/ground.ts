import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import postgres from 'postgres'
import { type Address, createTestClient, http, numberToHex, publicActions, walletActions } from 'viem'
import { hardhat } from 'viem/chains'
import { openServedNetworks } from '#chain/servedNetworks'
import { loopback, reservePort } from '#process/port'
import { networks } from '#protocol/networks'
import type { IndexerOptions } from '../../indexer/config.ts'
import { startIndexer } from '../../indexer/launch.ts'
import { devAccount, devPrivateKey } from '../../local/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../local/chain/startLocalChain.ts'
import { startPostgres } from '../../local/stack/postgres.ts'
import { Service } from '../../local/stack/service.ts'
import { cpuTime, parentOf } from './cpuTime.ts'

export const platform: Address = '0x00000000000000000000000000000000000fee00'
export const payees = Array.from({ length: 20 }, (_, i): Address => numberToHex(0xa000 + i, { size: 20 }))

export type Ground = Awaited<ReturnType<typeof openGround>>
type Program = { name: string; program: string[]; env?: Record<string, string>; portVariable?: string }

/**
 * What benches stand on: a durable Postgres, and a local chain with the contracts, which mines each transaction at once. What is
 * started by it or deferred to it ends with it, the last first: `await using ground = await openGround()`.
 */
export async function openGround() {
  await using started = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-bench-'))
  started.defer(() => rm(folder, { recursive: true, force: true }))
  const postgres = await startPostgres()
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

  /** Starts a program as a process of its own, on a free port: in the variable that is named, or as its first argument. */
  async function startService({ name, program: [file = '', ...args], env = {}, portVariable }: Program) {
    const port = await reservePort()
    const service = new Service({
      name,
      program: portVariable ? [file, ...args] : [file, String(port), ...args],
      env: portVariable ? { ...env, [portVariable]: String(port) } : env,
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
    ...{ folder, postgres, chain, deployment, deploymentsFile, served, env },
    defer: (close: () => Promise<unknown>) => stack.defer(async () => void (await close())),

    /** Starts Ponder, and doesn't wait until it is ready. */
    async startIndexer(databaseUrl: string, options: Partial<IndexerOptions> = {}) {
      const rpcUrls = { localhost: chain.url }
      const indexer = await startIndexer({
        ...{ databaseUrl, rpcUrls, platformWallets: [platform], deploymentsFile, ...options },
      })
      stack.defer(indexer.close)
      return indexer
    },

    startService,

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

/** A client of the local chain, for one who sends transactions. */
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

/** The process of the Postgres server that a connection belongs to; all of its sessions are children of it. */
export async function findPostmaster<Types extends Record<string, unknown>>(
  sql: postgres.Sql<Types>,
): Promise<number> {
  const [backend] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`
  return parentOf(backend?.pid ?? 0)
}

/** The same of the server at a URL. */
export async function findPostmasterAt(url: string): Promise<number> {
  const sql = postgres(url, { max: 1 })
  return findPostmaster(sql).finally(() => sql.end({ timeout: 1 }))
}

/** The most memory that a process ever had, MiB. */
export async function readPeakRssMb(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Math.round(Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) / 1024)
}
