import { randomBytes } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundlePonder } from '@tollkeeper/indexer/bundlePonder'
import { type Indexer, startIndexer } from '@tollkeeper/indexer/launch'
import { migrateAt } from '@tollkeeper/ledger/store/migrate'
import { loopback, reservePort } from '@tollkeeper/runtime/port'
import { removeWithUs } from '@tollkeeper/runtime/reaper'
import { networkVariable } from '@tollkeeper/runtime/variables'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'
import { devAccount, devPrivateKey } from '../chain/accounts.ts'
import { type LocalChain, type LocalChainOptions, startLocalChain } from '../chain/startLocalChain.ts'
import { clearLocalChainData } from './localData.ts'
import { startPostgres } from './postgres.ts'
import { registerProvider } from './registerProvider.ts'
import { Service } from './service.ts'

export type ServiceName = 'postgres' | 'chain' | 'indexer' | 'keeper' | 'api' | 'provider'
export type StackPorts = { [name in Exclude<ServiceName, 'postgres'>]?: number | undefined }
type Environment = Record<string, string | undefined>

export type StackOptions = {
  /** Default: free ports. */
  ports?: StackPorts
  /** URL of an external Postgres. Default: a new Postgres, which stops with the stack. */
  databaseUrl?: string | undefined
  /** Makes Postgres faster, but a crash loses data. For tests. */
  fastPostgres?: boolean
  chain?: Omit<LocalChainOptions, 'port' | 'bare'>
  /** Further chains, each with another network. */
  otherChains?: readonly Omit<LocalChainOptions, 'port' | 'bare'>[]
  /** Returns the URL by which our processes reach a chain. Default: the chain's own URL. */
  rpcUrlOf?: (chain: LocalChain) => Promise<string>
  /** Additional environment variables, by process. */
  env?: { api?: Environment; keeper?: Environment; indexer?: { logLevel?: string } }
  /** Whether to start the sample API, which is protected by the middleware. */
  provider?: boolean
  /** Aborts the start, and stops the parts that were already started. */
  signal?: AbortSignal
  /** Default: a temporary folder, which is removed when the stack is closed. */
  logFolder?: string | undefined
  onReady?: (name: ServiceName, url: string) => void
  /** Called with each line of a process's output. */
  onLine?: (name: ServiceName, line: string) => void
  /** Called if a process ends that the stack didn't stop. */
  onDeath?: (name: ServiceName, reason: string) => void
}

/** The complete system, each part as a separate process. The tests, the demo and `npm start` all use it. */
export type Stack = {
  chain: LocalChain
  otherChains: readonly LocalChain[]
  databaseUrl: string
  indexer: Indexer
  keeper: Service
  api: Service
  provider: Service | undefined
  /** API key of the sample provider, for signing in to the dashboard. */
  providerApiKey: string | undefined
  platformWallet: Address
  logFolder: string
  /** Environment variables that all processes share. */
  env: Environment
  /** Creates another process, such as a second keeper, without starting it. */
  createService: (name: 'keeper' | 'api', env?: Environment) => Promise<Service>
  /** Ends the indexer and starts it again. */
  restartIndexer: () => Promise<void>
  /** Stops everything in order; with `force`, immediately. */
  close: (options?: { force?: boolean }) => Promise<void>
}

/**
 * Networks that a local chain may simulate for people. x402's clients know the token of the first one, and pay there without an
 * option. The list has no network of real money, because a real wallet's signatures for the local chain would be valid there.
 */
export const playedNetworks = ['base-sepolia', 'localhost'] as const satisfies NetworkName[]
export type PlayedNetwork = (typeof playedNetworks)[number]

/**
 * Variables of a production environment with which our processes would reach systems outside the stack, or be reached by such
 * systems. The stack removes them because its chain may have a real network's name. Variables that the stack sets itself aren't
 * listed.
 */
const ofElsewhere: Environment = {
  DATABASE_DIRECT_URL: undefined,
  TABS_DATABASE_URL: undefined,
  KEEPER_KEY_FILE: undefined,
  KEEPER_SIGNER_URL: undefined,
  KEEPER_GATEWAY_URL: undefined,
  PLATFORM_WALLETS: undefined,
  SMTP_URL: undefined,
  MAIL_FROM: undefined,
  NODE_ENV: undefined,
}

/** Dev accounts by their use in the stack. Account 0 administers the token; accounts from 10 are free to use. */
const accounts = { keeper: 1, platform: 2, provider: 3 }

/** `.ts` in the repository, `.js` in the package. */
const extension = extname(import.meta.filename)
const root = fileURLToPath(new URL('../../../', import.meta.url))

/**
 * Starts Postgres and a chain, migrates the database, starts indexer, keeper and api, and then the sample API. If one of them fails, the
 * others stop.
 */
export async function startStack(options: StackOptions = {}): Promise<Stack> {
  const started = new Started()
  const close: Stack['close'] = ({ force = false } = {}) => started.close(force)
  try {
    return await bringUp(options, started, close)
  } catch (error) {
    await close()
    throw error
  }
}

/** Steps that stop the started parts, run in reverse order. */
class Started {
  readonly #undo: (() => Promise<void>)[] = []
  readonly #services: Service[] = []
  #closing: Promise<void> | undefined

  add(undo: () => Promise<void>): void {
    this.#undo.push(undo)
  }

  addService(service: Service): void {
    this.#services.push(service)
    this.#undo.push(() => service.stop())
  }

  get isClosing(): boolean {
    return this.#closing !== undefined
  }

  async close(force: boolean): Promise<void> {
    this.#closing ??= this.#close()
    // With `force`, kill the processes. The orderly stop, which waits for them, then completes immediately.
    if (force) await Promise.all(this.#services.map((service) => service.kill()))
    await this.#closing
  }

  async #close(): Promise<void> {
    const errors: unknown[] = []
    for (let undo = this.#undo.pop(); undo; undo = this.#undo.pop()) {
      await undo().catch((error) => errors.push(error))
    }
    if (errors.length > 0) throw new AggregateError(errors, 'not everything could be stopped')
  }
}

async function bringUp(options: StackOptions, started: Started, close: Stack['close']): Promise<Stack> {
  const { ports = {} } = options
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-stack-'))
  removeWithUs(folder)
  started.add(() => rm(folder, { recursive: true, force: true }))
  const logFolder = options.logFolder ?? folder
  await mkdir(logFolder, { recursive: true })

  // The first start in a checkout creates the bundle. Create it here: otherwise the indexer, which takes longest to start, would
  // wait for it.
  bundlePonder().catch(() => {}) // startIndexer reports this failure.
  const [databaseUrl, { chain, otherChains, rpcUrls }] = await allOf([
    openPostgres(options, started),
    startOwnChains({ ...options, logFolder }, started),
  ])
  options.signal?.throwIfAborted()
  const deploymentsFile = join(folder, 'deployments.json')
  await writeFile(deploymentsFile, JSON.stringify(deploymentsOf([chain, ...otherChains])))

  // The chain is new, so rows about an earlier chain are wrong.
  await clearLocalChainData(databaseUrl)
  await migrateAt(databaseUrl)

  const platformWallet = devAccount(accounts.platform).address
  const env: Environment = {
    ...ofElsewhere,
    DATABASE_URL: databaseUrl,
    NETWORKS: rpcUrls.map(([network]) => network).join(','),
    ...Object.fromEntries(rpcUrls.map(([network, url]) => [networkVariable('RPC_URL', network), url])),
    DEPLOYMENTS_FILE: deploymentsFile,
    PLATFORM_WALLET: platformWallet,
    LOG_LEVEL: 'info',
    // Settle payments of any age. Elsewhere, a minimum age gives middlewares time to void a payment whose acceptance they didn't receive.
    TRIGGER_MIN_AGE_SECONDS: '0',
  }

  options.signal?.throwIfAborted()
  const openIndexer = async () => {
    const launched = await startIndexer({
      databaseUrl,
      rpcUrls: Object.fromEntries(rpcUrls),
      platformWallets: [platformWallet],
      deploymentsFile,
      port: ports.indexer,
      logLevel: options.env?.indexer?.logLevel,
      onLog: (line) => options.onLine?.('indexer', line),
    })
    void launched.exited.then((status) => {
      const isOurDoing = started.isClosing || launched !== indexer
      if (!isOurDoing) options.onDeath?.('indexer', `indexer ended (status ${status})`)
    })
    return launched
  }
  let indexer: Indexer | undefined
  const opening = openIndexer()
  opening.catch(() => {}) // `indexed` below reports this failure.
  started.add(async () => {
    // If a process fails in the meantime, Ponder must not keep running.
    await opening.catch(() => {})
    await indexer?.close()
  })

  const service = async (name: 'keeper' | 'api', own: Environment = {}, port = 0): Promise<Service> => {
    const chosen = port || (await reservePort())
    const url = `http://${loopback}:${chosen}`
    const specific = name === 'keeper' ? keeperEnv(chosen) : { ...apiEnv(chosen, url), ...apiSecrets }
    const created = new Service({
      name,
      program: [join(root, name, `main${extension}`)],
      env: { ...env, ...specific, ...options.env?.[name], ...own },
      url,
      readyPath: '/readyz',
      logFile: join(logFolder, `${name}.log`),
      onLine: (line) => options.onLine?.(name, line),
      onDeath: (reason) => options.onDeath?.(name, reason),
    })
    started.addService(created)
    return created
  }
  const apiSecrets: Environment = {
    MACAROON_SECRETS: `local:${randomBytes(32).toString('hex')}`,
    RECEIPT_KEY_FILE: join(folder, 'receipt-key.json'),
  }

  const keeper = await service('keeper', {}, ports.keeper)
  const api = await service('api', {}, ports.api)
  // Ponder takes longest to start, so start the other processes meanwhile. A keeper becomes ready once there is an index.
  const indexed = opening.then(async (opened) => {
    indexer = opened
    await opened.ready
    options.onReady?.('indexer', `${opened.url}/graphql`)
  })
  const startService = async (each: Service) => {
    await each.start()
    options.onReady?.(each.name as ServiceName, each.url)
  }
  const served = Promise.all([keeper, api].map(startService))
  await Promise.race([Promise.all([served, indexed]), aborted(options.signal)])

  const stack: Stack = {
    chain,
    otherChains,
    databaseUrl,
    get indexer() {
      return indexer as Indexer
    },
    keeper,
    api,
    provider: undefined,
    providerApiKey: undefined,
    platformWallet,
    logFolder,
    env,
    createService: (name, own) => service(name, own),
    restartIndexer: async () => {
      const before = indexer
      indexer = undefined
      await before?.close()
      indexer = await openIndexer()
      await indexer.ready
    },
    close,
  }
  if (options.provider) {
    const sample = await startSampleProvider(stack, options, started)
    stack.provider = sample.provider
    stack.providerApiKey = sample.apiKey
    options.onReady?.('provider', sample.provider.url)
  }
  return stack
}

function keeperEnv(port: number): Environment {
  return {
    KEEPER_HOST: loopback,
    KEEPER_PORT: String(port),
    KEEPER_PRIVATE_KEYS: devPrivateKey(accounts.keeper),
    ETH_USD: '3000',
    PRIORITY_FEE_WEI: '1000',
  }
}

function apiEnv(port: number, url: string): Environment {
  return { API_HOST: loopback, API_PORT: String(port), PUBLIC_URL: url }
}

async function startOwnChains(
  options: StackOptions,
  started: Started,
): Promise<Pick<Stack, 'chain' | 'otherChains'> & { rpcUrls: [NetworkName, string][] }> {
  const start = async (own: LocalChainOptions) => {
    const logFile = options.logFolder && join(options.logFolder, 'chain.log')
    const chain = await startLocalChain({
      ...own,
      port: own.port || (await reservePort()),
      ...(logFile && { logFile }),
    })
    void chain.exited.then((ending) => {
      if (!started.isClosing) options.onDeath?.('chain', `the local chain ended (${ending})`)
    })
    started.add(() => chain.close())
    return chain
  }
  const port = options.ports?.chain
  const chain = await start({ ...options.chain, ...(port !== undefined && { port }) })
  const otherChains: LocalChain[] = []
  for (const other of options.otherChains ?? []) otherChains.push(await start(other))
  const { rpcUrlOf = async ({ url }) => url } = options
  const rpcUrls: [NetworkName, string][] = []
  for (const one of [chain, ...otherChains]) rpcUrls.push([one.network, await rpcUrlOf(one)])
  options.onReady?.('chain', chain.url)
  return { chain, otherChains, rpcUrls }
}

function deploymentsOf(chains: readonly LocalChain[]): LocalChain['deployments'] {
  return Object.assign({}, ...chains.map(({ deployments }) => deployments))
}

async function openPostgres(options: StackOptions, started: Started): Promise<string> {
  const url = options.databaseUrl ?? (await startOwnPostgres(options, started))
  options.onReady?.('postgres', withoutPassword(url))
  return url
}

async function startOwnPostgres(options: StackOptions, started: Started): Promise<string> {
  const server = await startPostgres({ fast: options.fastPostgres ?? false })
  started.add(() => server.close())
  void server.exited.then(() => {
    if (!started.isClosing) options.onDeath?.('postgres', 'Postgres ended')
  })
  return server.createDatabase('tollkeeper')
}

async function startSampleProvider(
  stack: Stack,
  options: StackOptions,
  started: Started,
): Promise<{ provider: Service; apiKey: string }> {
  const port = options.ports?.provider || (await reservePort())
  const url = `http://${loopback}:${port}`
  const registered = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'Sample weather API',
    network: stack.chain.network,
    address: devAccount(accounts.provider).address,
    endpoints: [{ url: `${url}/forecast`, usdcPerUnit: '0.01' }],
  })
  const provider = new Service({
    name: 'provider',
    // Resolve the packages' exports to their sources.
    program: ['--conditions=@tollkeeper/source', join(root, 'examples', 'hono', `main${extension}`)],
    env: {
      GATEWAY_URL: stack.api.url,
      PROVIDER_ID: registered.providerId,
      PROVIDER_API_KEY: registered.apiKey,
      PROVIDER_PORT: String(port),
    },
    url,
    readyPath: '/',
    logFile: join(stack.logFolder, 'provider.log'),
    onLine: (line) => options.onLine?.('provider', line),
    onDeath: (reason) => options.onDeath?.('provider', reason),
  })
  started.addService(provider)
  await Promise.race([provider.start(), aborted(options.signal)])
  return { provider, apiKey: registered.apiKey }
}

/** Works like Promise.all, but if one start fails, waits for the others, so that they can be stopped. */
async function allOf<Results extends readonly unknown[]>(
  starts: {
    [index in keyof Results]: Promise<Results[index]>
  },
): Promise<Results> {
  await Promise.allSettled(starts)
  return (await Promise.all(starts)) as unknown as Results
}

/** Rejects when the start is aborted; never settles without a signal. */
function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    signal?.throwIfAborted()
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
}

function withoutPassword(url: string): string {
  const shown = new URL(url)
  shown.password = ''
  return shown.href
}
