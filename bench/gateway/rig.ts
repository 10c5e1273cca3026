/** What the gateway's benches run on: funded buyers, and our api as processes of its own before a durable Postgres. */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { Database } from '@tollkeeper/ledger/store/database'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { registerProvider } from '../../apps/devstack/stack/registerProvider.ts'
import { createIndexTables, setIndexedHead } from '../../test/support/indexTables.ts'
import { startPgbouncer } from '../../test/support/pgbouncer.ts'
import { cpuTime, cpuTimeOfMainThread, cpuTimeOfTree } from '../support/cpuTime.ts'
import { findPostmaster, openGround, readPeakRssMb } from '../support/ground.ts'

export const usdcPerUnit = '0.05'
/** Of 16 MB each: at 7 KB a payment, enough for 70,000. */
const logFilesAhead = 32
/** All api processes' name for themselves, which their challenges' nonces follow from. */
const publicUrl = 'https://gateway.example'

export type RigOptions = {
  buyers: number
  /** How many api processes there are on the one database. Default: one. */
  apis?: number
  /** PgBouncer in transaction mode stands between them and Postgres. */
  withPooler?: boolean
  /** What the api processes are told beside what all benches tell them. */
  settings?: Record<string, string>
}

export type Rig = Awaited<ReturnType<typeof startRig>>
export type Server = Awaited<ReturnType<Rig['startServer']>>

export async function startRig(options: RigOptions) {
  await using starting = new AsyncDisposableStack()
  const ground = starting.use(await openGround())
  const { chain, folder, startService } = ground
  const buyers = await ground.fundBuyers(options.buyers)
  const databaseUrl = await ground.postgres.createDatabase('gateway')
  const pooler = options.withPooler ? await startPgbouncer(databaseUrl) : undefined
  if (pooler) ground.defer(pooler.close)
  const env = {
    ...ground.env,
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
  // The first migrates, and makes the receipts' key.
  const api = await startApi('api')
  const apis = [api]
  while (apis.length < (options.apis ?? 1)) apis.push(await startApi(`api-${apis.length + 1}`))

  const database = ground.open(databaseUrl, 2)
  await requireDurability(database)
  await writeLogAhead(database)
  const postmaster = await findPostmaster(database)
  // An index that stands at the chain's head and has seen nothing settle: Ponder itself would share the two cores.
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
    ...ground,
    apiPort: api.port,
    /** All api processes; the first is the one of `apiPort`. */
    apis,
    poolerCpu: pooler && (() => cpuTime(pooler.pid() ?? 0)),
    /** What names the gateway in what is signed for it. */
    issuer: publicUrl,
    buyers,
    shop,
    openShop,
    startApi,
    database,
    databaseUrl,
    apiPeakRssMb: () => readPeakRssMb(api.pid()),
    /** CPU time that each part has used so far, µs; `api` is the first one's, `apiMain` is part of it. */
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
 * Gives Postgres the log files that one has which has run for a while, and which it writes over again and again. A new one
 * makes everybody wait who commits, until 16 MB of zeros are on the disk: at 2,500 payments/s, once a second.
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
  if (off.length > 0) throw new Error(`the bench needs these of Postgres on: ${JSON.stringify(off)}`)
}
