// The rig of the gateway's benches: funded buyers, and our api as one or several processes with a durable Postgres.

import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { Database } from '@tollkeeper/ledger/store/database'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import { createIndexTables, setIndexedHead } from '../../test/support/indexTables.ts'
import { startPgbouncer } from '../../test/support/pgbouncer.ts'
import { findPostmaster, openBenchEnv, readPeakRssMb } from '../support/benchEnv.ts'
import { cpuTime, cpuTimeOfMainThread, cpuTimeOfTree } from '../support/cpuTime.ts'

/** The price of a request in USDC. */
export const usdcPerUnit = '0.05'
/** Number of WAL files of 16 MB each. At 7 KB per payment, they suffice for 70,000 payments. */
const logFilesAhead = 32
/** The common public URL of all api processes, from which their challenges' nonces are derived. */
const publicUrl = 'https://gateway.example'

export type RigOptions = {
  buyers: number
  /** Number of api processes that share the database. Default 1. */
  apis?: number
  /** Whether the api processes connect to Postgres through PgBouncer in transaction mode. */
  withPooler?: boolean
  /** Additional environment variables of the api processes. */
  settings?: Record<string, string>
}

export type Rig = Awaited<ReturnType<typeof startRig>>
export type Server = Awaited<ReturnType<Rig['startServer']>>

export async function startRig(options: RigOptions) {
  await using starting = new AsyncDisposableStack()
  const benchEnv = starting.use(await openBenchEnv())
  const { chain, folder, startService } = benchEnv
  const buyers = await benchEnv.fundBuyers(options.buyers)
  const databaseUrl = await benchEnv.postgres.createDatabase('gateway')
  const pooler = options.withPooler ? await startPgbouncer(databaseUrl) : undefined
  if (pooler) benchEnv.defer(pooler.close)
  const env = {
    ...benchEnv.env,
    DATABASE_URL: pooler?.urlOf('api') ?? databaseUrl,
    DATABASE_DIRECT_URL: databaseUrl,
    MACAROON_SECRETS: `bench:${randomBytes(32).toString('hex')}`,
    RECEIPT_KEY_FILE: join(folder, 'receipt-keys.json'),
    RATE_LIMITS: 'off',
    PUBLIC_URL: publicUrl,
    ...options.settings,
  }
  const startApi = (name: string, more: Record<string, string> = {}) =>
    startService({ name, program: ['api/main.ts'], env: { ...env, ...more }, portVariable: 'API_PORT' })
  // Start the first api process alone, because it migrates the database and creates the key for receipts.
  const api = await startApi('api')
  const apis = [api]
  while (apis.length < (options.apis ?? 1)) apis.push(await startApi(`api-${apis.length + 1}`))

  const database = benchEnv.open(databaseUrl, 2)
  await requireDurability(database)
  await writeLogAhead(database)
  const postmaster = await findPostmaster(database)
  // Replaces Ponder, which would share the two cores, by an empty index at the chain's head.
  await createIndexTables(database)
  const [{ chainId }, blockTime] = [networks.localhost, Math.floor(Date.now() / 1000)]
  await setIndexedHead(database, { chainId, blockNumber: 1_000_000, blockTime })

  /** Registers a provider with one endpoint. */
  async function openShop(address: Address, price: string) {
    const url = 'https://api.example/forecast'
    const provider = await registerProvider({
      gatewayUrl: api.service.url,
      name: 'Bench',
      network: 'localhost',
      address,
      endpoints: [{ url, usdcPerUnit: price }],
    })
    return { ...provider, url, address }
  }
  const shop = await openShop('0x0000000000000000000000000000000000005e11', usdcPerUnit)
  starting.move()
  return {
    ...benchEnv,
    apiPort: api.port,
    /** All api processes. The first one listens on `apiPort`. */
    apis,
    poolerCpu: pooler && (() => cpuTime(pooler.pid() ?? 0)),
    /** The gateway's URL, which is part of everything that is signed for the gateway. */
    issuer: publicUrl,
    buyers,
    shop,
    openShop,
    startApi,
    database,
    databaseUrl,
    apiPeakRssMb: () => readPeakRssMb(api.pid()),
    /** Returns the CPU time that each part has used so far, in µs. `api` is the first process, and `apiMain` its main thread. */
    cpu: async () => ({
      api: await api.cpu(),
      apiMain: await cpuTimeOfMainThread(api.pid()),
      postgres: await cpuTimeOfTree(postmaster),
      chain: await cpuTime(chain.pid),
      load: await cpuTime(process.pid),
    }),
  }
}

/**
 * Creates the WAL files that Postgres would have and reuse after it has run for a while. Whenever Postgres needs a new WAL file, all commits
 * wait until 16 MB of zeros are on the disk. At 2,500 payments/s, this would happen once a second.
 */
async function writeLogAhead(database: Database): Promise<void> {
  await database`alter system set min_wal_size = ${database.unsafe(`'${logFilesAhead * 16}MB'`)}`
  await database`select pg_reload_conf()`
  for (let i = 0; i < logFilesAhead; i++)
    await database`select pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()`
  await database`checkpoint`
}

async function requireDurability(database: Database): Promise<void> {
  const off = await database`
    select name from pg_settings
    where name in ('fsync', 'synchronous_commit', 'full_page_writes') and setting <> 'on'`
  if (off.length > 0)
    throw new Error(`the bench requires that these Postgres settings are on: ${JSON.stringify(off)}`)
}
