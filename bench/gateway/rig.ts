/** What the gateway's benches run on: a durable Postgres, a chain with funded buyers, our api as its own process. */
import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type postgres from 'postgres'
import secp256k1 from 'secp256k1'
import { type Address, bytesToHex, type Hex, hexToBytes, toHex } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { keccak256 } from '#chain/keccak256'
import { openDatabase } from '#ledger/store/database'
import { loopback, reservePort } from '#process/port'
import { boundNonce, type Challenge, feeNonce, maxTimeoutSeconds } from '#protocol/challenge'
import { domainSeparator, eip712Domain, hashAuthorization } from '#protocol/eip3009'
import { networks } from '#protocol/networks'
import { encodePayload, type SignedAuthorization } from '#protocol/payload'
import { splitterOf } from '#protocol/splitter'
import { startLocalChain } from '../../local/chain/startLocalChain.ts'
import { startPostgres } from '../../local/stack/postgres.ts'
import { type RegisteredProvider, registerProvider } from '../../local/stack/registerProvider.ts'
import { Service } from '../../local/stack/service.ts'
import { createIndexTables, setIndexedHead } from '../../test/support/indexTables.ts'
import { startPgbouncer } from '../../test/support/pgbouncer.ts'
import { validFor } from '../../test/support/usdc.ts'
import { cpuTime, cpuTimeOfMainThread, cpuTimeOfTree, parentOf } from '../support/cpuTime.ts'

export type Buyer = { address: Address; key: Uint8Array }

export type VerifyBody = {
  macaroon: string
  payloads: [string, string?]
  providerId: string
  endpointId: string
  pricing: { usdcPerUnit: string }
}

export type Rig = {
  api: Service
  apiPort: number
  /** Of all api processes; the first is `api`. */
  apis: { port: number; cpu: () => Promise<number> }[]
  /** CPU time of PgBouncer, where it stands before Postgres. */
  poolerCpu: (() => Promise<number>) | undefined
  /** Where the api's inspector listens, if it was asked for. */
  inspectorUrl: string | undefined
  rpcUrl: string
  usdc: Address
  splitterFactory: Address
  buyers: Buyer[]
  shop: RegisteredProvider & { url: string; address: Address }
  database: postgres.Sql
  databaseUrl: string
  /** Starts a program of this folder as a process of its own; it goes with the rig. */
  startServer: (
    file: string,
    args?: string[],
    env?: Record<string, string>,
  ) => Promise<{ port: number; cpu: () => Promise<number> }>
  /** The most memory that the api had, MiB. */
  apiPeakRssMb: () => Promise<number>
  /** CPU time that each part has used so far, µs; `api` is the first one's, `apiMain` is part of it. */
  cpu: () => Promise<{ api: number; apiMain: number; postgres: number; chain: number; load: number }>
  close: () => Promise<void>
}

export const usdcPerUnit = '0.05'
/** Of 16 MB each: at 7 KB a payment, enough for 70,000. */
const logFilesAhead = 32
/** All api processes' name for themselves, which their challenges' nonces follow from. */
const publicUrl = 'https://gateway.example'
const platformWallet: Address = '0x00000000000000000000000000000000000fee00'

export type RigOptions = {
  buyers: number
  withInspector?: boolean
  /** How many api processes there are on the one database. Default: one. */
  apis?: number
  /** PgBouncer in transaction mode stands between them and Postgres. */
  withPooler?: boolean
}

export async function startRig({
  buyers: count,
  withInspector = false,
  apis: apiCount = 1,
  withPooler = false,
}: RigOptions): Promise<Rig> {
  const closers: (() => Promise<unknown>)[] = []
  const close = async () => {
    for (const closer of closers.splice(0).reverse()) await closer()
  }
  try {
    const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-bench-'))
    closers.push(() => rm(folder, { recursive: true, force: true }))
    const server = await startPostgres()
    closers.push(server.close)
    const chain = await startLocalChain({ blockTimeMs: 0 })
    closers.push(chain.close)
    const deployment = chain.deployments.localhost
    if (deployment === undefined) throw new Error('the local chain has no deployment')

    const buyers = Array.from({ length: count }, (_, i): Buyer => {
      const key = bytesToHex(keccak256(Buffer.from(`bench buyer ${i}`)))
      return { address: privateKeyToAddress(key).toLowerCase() as Address, key: hexToBytes(key) }
    })
    await chain.mintUsdc(
      buyers.map(({ address }) => address),
      1_000_000_000_000n,
    )

    const databaseUrl = await server.createDatabase('gateway')
    const deploymentsFile = join(folder, 'deployments.json')
    await writeFile(deploymentsFile, JSON.stringify(chain.deployments))

    const startServer = async (file: string, args: string[] = [], env: Record<string, string> = {}) => {
      const port = await reservePort()
      const name = file.replace('.ts', '')
      const service = new Service({
        name,
        program: [join(import.meta.dirname, file), String(port), ...args],
        env,
        url: `http://${loopback}:${port}`,
        readyPath: '/healthz',
        logFile: join(folder, `${name}.log`),
      })
      closers.push(() => service.stop())
      await service.start()
      return { port, cpu: () => cpuTime(service.pid ?? 0) }
    }

    const pooler = withPooler ? await startPgbouncer(databaseUrl) : undefined
    if (pooler) closers.push(pooler.close)
    let inspectorUrl: string | undefined
    const apiEnv = {
      DATABASE_URL: pooler?.urlOf('api') ?? databaseUrl,
      DATABASE_DIRECT_URL: databaseUrl,
      NETWORKS: 'localhost',
      RPC_URL_LOCALHOST: chain.url,
      DEPLOYMENTS_FILE: deploymentsFile,
      PLATFORM_WALLET: platformWallet,
      MACAROON_SECRETS: `bench:${randomBytes(32).toString('hex')}`,
      RECEIPT_KEY_FILE: join(folder, 'receipt-keys.json'),
      RATE_LIMITS: 'off',
      LOG_LEVEL: 'info',
    }
    const startApi = async (name: string): Promise<{ service: Service; port: number }> => {
      const port = await reservePort()
      const service = new Service({
        name,
        program: [...(withInspector ? [`--inspect=${loopback}:0`] : []), 'api/main.ts'],
        env: { ...apiEnv, API_PORT: String(port), PUBLIC_URL: publicUrl },
        url: `http://${loopback}:${port}`,
        readyPath: '/healthz',
        logFile: join(folder, `${name}.log`),
        onLine: (line) => {
          inspectorUrl ??= /ws:\/\/\S+/.exec(line)?.[0]
        },
      })
      closers.push(() => service.stop())
      await service.start()
      return { service, port }
    }
    // The first migrates, and makes the receipts' key.
    const { service: api, port: apiPort } = await startApi('api')
    const apis = [{ service: api, port: apiPort }]
    while (apis.length < apiCount) apis.push(await startApi(`api-${apis.length + 1}`))

    const database = openDatabase({ url: databaseUrl, max: 2, applicationName: 'bench' })
    closers.push(() => database.end())
    await requireDurability(database)
    await writeLogAhead(server.url)
    const [backend] = await database`select pg_backend_pid() as pid`
    const postmaster = await parentOf(backend?.pid)
    // An index that stands at the chain's head and has seen nothing settle: Ponder itself would share the two cores.
    await createIndexTables(database)
    await setIndexedHead(database, {
      chainId: networks.localhost.chainId,
      blockNumber: 1_000_000,
      blockTime: Math.floor(Date.now() / 1000),
    })

    const address: Address = '0x0000000000000000000000000000000000005e11'
    const url = 'https://api.example/forecast'
    const provider = await registerProvider({
      gatewayUrl: api.url,
      name: 'Bench',
      network: 'localhost',
      address,
      endpoints: [{ url, usdcPerUnit }],
    })
    return {
      api,
      apiPort,
      apis: apis.map(({ service, port }) => ({ port, cpu: () => cpuTime(service.pid ?? 0) })),
      poolerCpu: pooler && (() => cpuTime(pooler.pid() ?? 0)),
      inspectorUrl,
      rpcUrl: chain.url,
      usdc: deployment.usdc,
      splitterFactory: deployment.splitterFactory,
      buyers,
      shop: { ...provider, url, address },
      database,
      databaseUrl,
      startServer,
      apiPeakRssMb: async () => {
        const status = await readFile(`/proc/${api.pid}/status`, 'utf8')
        return Math.round(Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) / 1024)
      },
      cpu: async () => ({
        api: await cpuTime(api.pid ?? 0),
        apiMain: await cpuTimeOfMainThread(api.pid ?? 0),
        postgres: await cpuTimeOfTree(postmaster),
        chain: await cpuTime(chain.pid),
        load: await cpuTime(process.pid),
      }),
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/**
 * Gives Postgres the log files that one has which has run for a while, and which it writes over again and again. A new one
 * makes everybody wait who commits, until 16 MB of zeros are on the disk: at 2,500 payments/s, once a second.
 */
async function writeLogAhead(url: string): Promise<void> {
  const superuser = openDatabase({ url, max: 1, applicationName: 'bench', limited: false })
  try {
    await superuser`alter system set min_wal_size = ${superuser.unsafe(`'${logFilesAhead * 16}MB'`)}`
    await superuser`select pg_reload_conf()`
    for (let i = 0; i < logFilesAhead; i++) {
      await superuser`select pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()`
    }
    await superuser`checkpoint`
  } finally {
    await superuser.end()
  }
}

async function requireDurability(database: postgres.Sql): Promise<void> {
  for (const name of ['fsync', 'synchronous_commit', 'full_page_writes']) {
    const [row] = await database`select current_setting(${name}) as value`
    if (row?.value !== 'on') throw new Error(`Postgres has ${name} = ${row?.value}; the bench needs it on`)
  }
}

/** Two authorizations whose nonces follow from the challenge, two with random ones, or one to the splitter. */
export type PaymentKind = 'bound' | 'random' | 'oneSignature'

/** Signs authorizations with native secp256k1: a bench needs thousands. */
export function createAuthorizer(usdc: Address) {
  const separator = domainSeparator(eip712Domain(networks.localhost, usdc))
  return (
    buyer: Buyer,
    to: Address,
    value: bigint,
    nonce: Hex,
    window = validFor(maxTimeoutSeconds),
  ): SignedAuthorization => {
    const authorization = { from: buyer.address, to, value, ...window, nonce }
    const { signature, recid } = secp256k1.ecdsaSign(hashAuthorization(separator, authorization), buyer.key)
    return { ...authorization, signature: `${bytesToHex(signature)}${(27 + recid).toString(16)}` }
  }
}

/** Signs challenges as our SDK does. */
export function createSigner({
  usdc,
  shop,
  splitterFactory,
}: Pick<Rig, 'usdc' | 'shop' | 'splitterFactory'>) {
  const { providerId, endpointIds } = shop
  const endpointId = endpointIds[0] as string
  const authorize = createAuthorizer(usdc)

  return {
    authorize,
    endpointId,
    sign(buyer: Buyer, challenge: Challenge, kind: PaymentKind = 'bound'): VerifyBody {
      const nonce =
        kind === 'random' ? toHex(randomBytes(32)) : boundNonce(challenge.issuer, challenge.requestId)
      const [provider, fee] = challenge.accepts
      const window = validFor(maxTimeoutSeconds)
      const [amount, feeAmount] = [BigInt(provider.maxAmountRequired), BigInt(fee.maxAmountRequired)]
      const toSplitter = () => {
        const terms = { payTo: provider.payTo, feePayTo: fee.payTo, amount, feeAmount }
        const splitter = splitterOf(terms, splitterFactory, keccak256)
        if (splitter === undefined) throw new Error('no splitter divides this price')
        return authorize(buyer, splitter.address, amount + feeAmount, nonce, window)
      }
      return {
        macaroon: challenge.macaroon,
        payloads:
          kind === 'oneSignature'
            ? [encodePayload(toSplitter())]
            : [
                encodePayload(authorize(buyer, provider.payTo, amount, nonce, window)),
                encodePayload(authorize(buyer, fee.payTo, feeAmount, feeNonce(nonce), window)),
              ],
        providerId,
        endpointId,
        pricing: { usdcPerUnit },
      }
    },
  }
}
