import { hash, randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { type Indexer, startIndexer } from '@tollkeeper/indexer/launch'
import { createKeeper, type Keeper, type KeeperOptions } from '@tollkeeper/keeper/keeper'
import type { KeeperSettings } from '@tollkeeper/keeper/settings/config'
import { storeRefund } from '@tollkeeper/ledger/acceptance/refunds'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import { setGasGrant } from '@tollkeeper/ledger/registry/apiKeys'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createLogger } from '@tollkeeper/runtime/log'
import { removeWithUs } from '@tollkeeper/runtime/reaper'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { refundNonce } from '@tollkeeper/sdk/protocol/refund'
import { type SplitterTerms, splitterAddress, splitterShares } from '@tollkeeper/sdk/protocol/splitter'
import { splitPrice } from '@tollkeeper/sdk/protocol/tier'
import { type Address, type Hex, keccak256 } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { afterAll, beforeAll } from 'vitest'
import { devPrivateKey } from '../../apps/devstack/chain/accounts.ts'
import { type LocalChain, startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { createMigratedDatabase } from './database.ts'
import { type Half, halvesOfPayment } from './halves.ts'
import { keeperDefaults } from './keeperDefaults.ts'
import { storePayments, toCandidate } from './seedPayments.ts'
import { resetChain } from './sharedChain.ts'
import { randomHex, readBalance, signAuthorization, validFor } from './usdc.ts'

export const platformWallet: Address = '0x00000000000000000000000000000000000fee01'

export type QueuedPayment = { paymentId: string; provider: SignedAuthorization; fee: SignedAuthorization }

/** A payment with one signature, to a splitter. */
export type SplitPayment = {
  paymentId: string
  authorization: SignedAuthorization
  splitter: Address
  terms: SplitterTerms
}

/** The signed state of a tab, which is a single authorization as well. */
type TabPayment = { paymentId: string; state: { authorization: SignedAuthorization } }

export type AnyPayment = QueuedPayment | SplitPayment | TabPayment

export function authorizationsOf(payment: AnyPayment): SignedAuthorization[] {
  if ('state' in payment) return [payment.state.authorization]
  return 'fee' in payment ? [payment.provider, payment.fee] : [payment.authorization]
}

export type QueueOptions = {
  buyer: PrivateKeyAccount
  /** USDC base units of both authorizations together. */
  price: bigint
  payee?: Address
  acceptedAt?: Date
  /** End of the authorizations' window, in seconds from now. */
  validFor?: number
  /** Changes to the signed values; the stored values stay. */
  sign?: (authorization: SignedAuthorization) => SignedAuthorization
  /** A payment of another operator, whose authorizations this payment uses as well. */
  copyOf?: QueuedPayment
  /** Default: a random one. */
  paymentId?: string
}

export type SplitOptions = Pick<
  QueueOptions,
  'buyer' | 'price' | 'payee' | 'acceptedAt' | 'validFor' | 'sign'
> & {
  /** Default: {@link platformWallet}. */
  platform?: Address
  /** The platform's share of the price in base units. Default: the tiered fee (conformance 2.9). */
  feeAmount?: bigint
}

export type RefundOptions = {
  of: QueuedPayment
  number: number
  wallet: PrivateKeyAccount
  /** USDC base units. */
  value: bigint
  acceptedAt?: Date
}

/**
 * An array of length N, or of any length if N is just `number`. If the length is known, code can access an element without a
 * check.
 */
export type Many<T, N extends number> = number extends N ? T[] : Exactly<T, N>
type Exactly<T, N extends number, Counted extends T[] = []> = Counted['length'] extends N
  ? Counted
  : Exactly<T, N, [...Counted, T]>

export type KeeperStack = {
  chain: LocalChain
  databaseUrl: string
  deploymentsFile: string
  database: Database
  served: ServedNetwork
  indexer: Indexer
  /** The wallet of the registered provider. */
  payee: Address
  /** An API key of the registered provider. */
  apiKey: string
  /** An API key of a provider whose gas the operator pays. */
  grantedKey: string
  settings: KeeperSettings
  /** Creates a keeper in this process, which does nothing before its `start`. */
  keeper: (overrides?: KeeperOverrides) => Keeper
  /** Environment variables with which our processes work on this stack. */
  env: Record<string, string>
  /** Creates accounts with USDC. */
  buyers: <N extends number>(count: N, usdc: bigint) => Promise<Many<PrivateKeyAccount, N>>
  /** Creates one account. Default: with 1 USDC. */
  buyer: (usdc?: bigint) => Promise<PrivateKeyAccount>
  /** Queues a payment as `/verify` does, with real signatures. */
  queue: (options: QueueOptions) => Promise<QueuedPayment>
  /** Queues a payment with one signature. */
  queueSplit: (options: SplitOptions) => Promise<SplitPayment>
  /** Queues a refund of a payment as the gateway does, with a real signature of a wallet with USDC. */
  queueRefund: (options: RefundOptions) => Promise<{ paymentId: string }>
  halves: (payment: Pick<QueuedPayment, 'paymentId'>) => Promise<Half[]>
  isSettled: (payments: Pick<QueuedPayment, 'paymentId'>[]) => Promise<boolean>
  balanceOf: (address: Address) => Promise<bigint>
  close: () => Promise<void>
}

export type KeeperOverrides = Omit<Partial<KeeperOptions>, 'facilitator'> & {
  facilitator?: Partial<KeeperOptions['facilitator']>
}

/** Calls {@link startKeeperStack} for the tests of a file, and closes the stack after them. */
export function useKeeperStack(overrides?: Partial<KeeperSettings>, options?: BenchEnvOptions): KeeperStack {
  const stack = {} as KeeperStack
  beforeAll(async () => {
    Object.assign(stack, await startKeeperStack(overrides, options))
  })
  afterAll(() => stack.close?.())
  return stack
}

type BenchEnvOptions = {
  /** Starts separate parts instead of the shared ones, for a test that stops the index, makes a deep reorg, or runs next to another stack. */
  own?: boolean
  /** A chain that is already running. */
  chain?: LocalChain
  /** Another URL of the chain, used only by the index. */
  indexRpcUrl?: string
}

/** The parts that take long to start: the chain, and its index in a database. */
type BenchEnv = Pick<KeeperStack, 'chain' | 'databaseUrl' | 'deploymentsFile' | 'served' | 'indexer'> & {
  close: () => Promise<void>
}

/** The parts that this worker's test files share, except files that need separate parts. The parts' processes stop with the worker. */
let shared: Promise<BenchEnv> | undefined

/** Starts a real chain with real USDC, a real Postgres and a real Ponder, for keepers to work on. */
export async function startKeeperStack(
  overrides: Partial<KeeperSettings> = {},
  options: BenchEnvOptions = {},
): Promise<KeeperStack> {
  const isOwn = Object.values(options).some(Boolean)
  const benchEnv = await (isOwn ? startBenchEnv(options) : shareBenchEnv())
  const stack = await openStack(benchEnv, overrides)
  if (!isOwn) return stack
  return {
    ...stack,
    async close() {
      await stack.close()
      await benchEnv.close()
    },
  }
}

/** Returns the environment that test files share, after removing what the previous test file left in it. */
async function shareBenchEnv(): Promise<BenchEnv> {
  const before = await shared
  if (before !== undefined) {
    if (await clean(before)) return before
    await before.close()
  }
  shared = startBenchEnv({})
  return shared
}

/**
 * Empties our tables and resets the chain.
 *
 * @returns false if a test moved the chain's clock ahead or stopped the index.
 */
async function clean({ chain, databaseUrl, indexer }: BenchEnv): Promise<boolean> {
  const hasEnded = await Promise.race([indexer.exited.then(() => true), delay(0, false)])
  if (hasEnded || !(await resetChain(chain))) return false
  const sql = openDatabase({ url: databaseUrl, max: 1, applicationName: 'test', limited: false })
  const [tables] = await sql<[{ names: string }]>`
    select string_agg(quote_ident(tablename), ', ') as names from pg_tables
    where schemaname = current_schema and tablename not in ('migration', 'loaded_function', 'network')`
  await sql.unsafe(`truncate ${tables.names} restart identity`)
  await sql.end()
  return true
}

async function startBenchEnv({ chain: given, indexRpcUrl }: BenchEnvOptions): Promise<BenchEnv> {
  const chain = given ?? (await startLocalChain({ network: 'localhost', blockTimeMs: 0 }))
  const databaseUrl = await createMigratedDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'tollkeeper-test-'))
  removeWithUs(folder)
  const deploymentsFile = join(folder, 'deployments.json')
  await writeFile(deploymentsFile, JSON.stringify(chain.deployments))
  let isClosing = false
  const indexLines: string[] = []
  const indexer = await startIndexer({
    databaseUrl,
    onLog: (line) => {
      if (indexLines.push(line) > 20) indexLines.shift()
    },
    rpcUrls: { [chain.network]: indexRpcUrl ?? chain.url },
    platformWallets: [platformWallet],
    deploymentsFile,
  })
  const deployment = chain.deployments[chain.network]
  if (!deployment) throw new Error('the local chain has no deployment')
  const [served] = await openServedNetworks([
    { network: networkByName(chain.network), deployment, rpcUrls: [chain.url] },
  ])
  if (!served) throw new Error('the local chain is not served')
  await indexer.ready
  // Without this error, a test that waits for the index would time out without a reason.
  void indexer.exited.then((status) => {
    if (!isClosing) console.error(`the index ended with status ${status}:\n${indexLines.join('\n')}`)
  })
  return {
    chain,
    databaseUrl,
    deploymentsFile,
    served,
    indexer,
    async close() {
      isClosing = true
      await indexer.close()
      if (given === undefined) await chain.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function openStack(benchEnv: BenchEnv, overrides: Partial<KeeperSettings>): Promise<KeeperStack> {
  const { chain, databaseUrl, deploymentsFile, served, indexer } = benchEnv
  // Tests read without time limits, because they may have to wait while Ponder rebuilds its tables after a reorg. Keepers have the normal limits.
  const database = openDatabase({ url: databaseUrl, max: 20, applicationName: 'test', limited: false })
  const keepersDatabase = openDatabase({ url: databaseUrl, max: 20, applicationName: 'test keeper' })
  const settings: KeeperSettings = {
    triggers: { ...defaultTriggers, minAgeMs: 0 },
    pollMs: 100,
    leaseMs: 3_000,
    maxIndexLagBlocks: 20n,
    rebroadcastAfterMs: 2_000,
    replaceAfterMs: 5_000,
    priorityFeePerGas: 0n,
    maxFeePerGas: 100_000_000_000n,
    gasPerFee: null,
    dailyBudget: null,
    gasTokenUsd: 500_000_000n,
    gasAllowance: 1_000_000_000n,
    ...overrides,
  }
  const registry = await register(database)

  return {
    chain,
    databaseUrl,
    deploymentsFile,
    database,
    served,
    indexer,
    settings,
    env: {
      DATABASE_URL: databaseUrl,
      NETWORKS: chain.network,
      RPC_URL_LOCALHOST: chain.url,
      DEPLOYMENTS_FILE: deploymentsFile,
      PLATFORM_WALLET: platformWallet,
    },
    payee: registry.payee,
    apiKey: registry.apiKey,
    grantedKey: registry.grantedKey,
    keeper: ({ facilitator, ...more } = {}) =>
      createKeeper({
        ...keeperDefaults,
        facilitator: { ...keeperDefaults.facilitator, ...facilitator },
        tabs: { ...keeperDefaults.tabs, database: onOnePostgres(keepersDatabase) },
        database: keepersDatabase,
        networks: [served],
        accounts: [walletAccount(0)],
        platformWallets: [platformWallet],
        settings,
        submitTimeoutMs: 120_000,
        upkeepMs: 500,
        log: createLogger('keeper', (process.env.LOG_LEVEL ?? 'silent') as 'silent'),
        now: () => new Date(),
        randomBytes32: () => randomHex(32),
        holder: randomHex(4),
        ...more,
      }),
    async buyers(count, usdc) {
      return (await newBuyers(chain, count, usdc)) as Many<PrivateKeyAccount, typeof count>
    },
    buyer: async (usdc = 1_000_000n) => (await newBuyers(chain, 1, usdc))[0] as PrivateKeyAccount,
    queue: (options) => queuePayment(database, served, registry, options),
    queueSplit: (options) => queueSplitPayment(database, served, registry, options),
    queueRefund: (options) => queueRefund(database, served, registry, options),
    halves: ({ paymentId }) => halvesOfPayment(database, paymentId),
    async isSettled(payments) {
      const all = await Promise.all(payments.map(({ paymentId }) => halvesOfPayment(database, paymentId)))
      return all.flat().every((half) => half.state === 'settled')
    },
    balanceOf: (address) => readBalance(served.client, served.token, address),
    async close() {
      await Promise.all([database.end({ timeout: 1 }), keepersDatabase.end({ timeout: 1 })])
    },
  }
}

async function newBuyers(chain: LocalChain, count: number, usdc: bigint): Promise<PrivateKeyAccount[]> {
  const accounts = Array.from({ length: count }, () => privateKeyToAccount(generatePrivateKey()))
  const addresses = accounts.map(({ address }) => address)
  if (usdc > 0n) await chain.mintUsdc(addresses, usdc)
  return accounts
}

/** Returns the key of a funded account that settles. Dev account 0 is the administrator of USDC. */
export function walletKey(index: number): Hex {
  return devPrivateKey(10 + index)
}

export function walletAccount(index: number): PrivateKeyAccount {
  return privateKeyToAccount(walletKey(index))
}

type Registry = { providerId: string; endpointId: string; payee: Address; apiKey: string; grantedKey: string }

async function register(sql: Database): Promise<Registry> {
  const [walletId, endpointId] = [randomId('wal'), randomId('ep')]
  const payee = randomHex(20)
  const { providerId, apiKey } = await registerProvider(sql, 'Weather')
  await sql`insert into wallet (id, provider_id, chain_id, address) values (${walletId}, ${providerId}, 31337, ${payee})`
  await sql`
    insert into endpoint (id, provider_id, wallet_id, chain_id, testnet, method, url, host, path, shape, price)
    values (${endpointId}, ${providerId}, ${walletId}, 31337, true, 'GET', 'https://weather.example/', 'weather.example', '/', '/', 50000)`
  const granted = await registerProvider(sql, 'Another operator')
  await setGasGrant(sql, granted.providerId, 1_000_000_000n)
  return { providerId, endpointId, payee, apiKey, grantedKey: granted.apiKey }
}

async function registerProvider(sql: Database, name: string) {
  const providerId = randomId('prov')
  await sql`insert into provider (id, name) values (${providerId}, ${name})`
  const [keyId, secret] = [randomBytes(16).toString('hex'), randomBytes(32).toString('base64url')]
  await sql`
    insert into api_key (id, provider_id, secret_hash)
    values (${`key_${keyId}`}, ${providerId}, ${hash('sha256', secret, 'buffer')})`
  return { providerId, apiKey: `tk_${keyId}_${secret}` }
}

const randomId = (prefix: string) => `${prefix}_${randomBytes(16).toString('hex')}`

/** Signs a transfer of the local chain's USDC. */
export function signTransfer(
  served: Pick<ServedNetwork, 'network' | 'token'>,
  buyer: PrivateKeyAccount,
  transfer: Omit<SignedAuthorization, 'signature' | 'from'>,
): Promise<SignedAuthorization> {
  return signAuthorization(served, buyer, { from: buyer.address.toLowerCase() as Address, ...transfer })
}

async function queuePayment(
  sql: Database,
  served: ServedNetwork,
  registry: Registry,
  options: QueueOptions,
): Promise<QueuedPayment> {
  const { buyer, price, payee = registry.payee, acceptedAt = new Date() } = options
  const { sign = (authorization) => authorization, copyOf, paymentId = randomId('pay') } = options
  const { tier, providerAmount, feeAmount } = splitPrice(price)
  const nonce = randomHex(32)
  const window = validFor(options.validFor ?? 93_600)
  const provider =
    copyOf?.provider ??
    sign(await signTransfer(served, buyer, { to: payee, value: providerAmount, ...window, nonce }))
  const fee =
    copyOf?.fee ??
    sign(
      await signTransfer(served, buyer, {
        to: platformWallet,
        value: feeAmount,
        ...window,
        nonce: keccak256(nonce),
      }),
    )
  const toHalf = ({ to, from: _, ...rest }: SignedAuthorization) => ({
    recipient: to,
    ...rest,
    acceptedBlock: null,
  })
  await storePayments(sql, [
    {
      id: paymentId,
      providerId: registry.providerId,
      endpointId: registry.endpointId,
      chainId: served.network.chainId,
      token: served.token,
      payer: provider.from,
      halves: [toHalf(provider), toHalf(fee)],
      tier,
      resource: 'https://weather.example/',
      acceptedAt,
    },
  ])
  return { paymentId, provider, fee }
}

async function queueSplitPayment(
  sql: Database,
  served: ServedNetwork,
  registry: Registry,
  options: SplitOptions,
): Promise<SplitPayment> {
  const { buyer, price, payee = registry.payee, acceptedAt = new Date() } = options
  const { sign = (authorization) => authorization, platform = platformWallet } = options
  const { tier, feeAmount: usual } = splitPrice(price)
  const { feeAmount = usual } = options
  const providerAmount = price - feeAmount
  const terms = { provider: payee, platform, ...splitterShares(price, feeAmount) }
  const splitter = splitterAddress({ ...terms, factory: served.deployment.splitterFactory })
  const authorization = sign(
    await signTransfer(served, buyer, {
      to: splitter,
      value: price,
      ...validFor(options.validFor ?? 93_600),
      nonce: randomHex(32),
    }),
  )
  const { from, to, ...signed } = authorization
  const paymentId = randomId('pay')
  await storePayments(sql, [
    {
      id: paymentId,
      providerId: registry.providerId,
      endpointId: registry.endpointId,
      chainId: served.network.chainId,
      token: served.token,
      payer: from,
      payee,
      feeRecipient: platform,
      providerAmount,
      feeAmount,
      price,
      splitter,
      tier,
      acceptedAt,
      halves: [{ ...signed, recipient: to, acceptedBlock: null }],
      resource: 'https://weather.example/',
    },
  ])
  return { paymentId, authorization, splitter, terms }
}

async function queueRefund(
  sql: Database,
  served: ServedNetwork,
  { providerId }: Registry,
  { of, number, wallet, value, acceptedAt = new Date() }: RefundOptions,
): Promise<{ paymentId: string }> {
  const nonce = refundNonce('https://gateway.example', of.paymentId, number)
  const window = validFor(93_600)
  const { from, to, ...signed } = await signTransfer(served, wallet, {
    to: of.provider.from,
    value,
    ...window,
    nonce,
  })
  const paymentId = randomId('pay')
  const verdict = await storeRefund(
    sql,
    { paymentId: of.paymentId, number, providerId },
    toCandidate({
      id: paymentId,
      source: 'refund',
      providerId: null,
      endpointId: null,
      payer: from,
      chainId: served.network.chainId,
      token: served.token,
      feeRecipient: platformWallet,
      halves: [{ ...signed, recipient: to, acceptedBlock: null }],
      resource: 'https://weather.example/',
      acceptedAt,
    }),
  )
  if (verdict !== 'accepted') throw new Error(`the refund was ${verdict}`)
  return { paymentId }
}
