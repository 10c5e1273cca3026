import { type AppOptions, createApp } from '@tollkeeper/api/app'
import type { App } from '@tollkeeper/api/http/app'
import type { GatewaySettings } from '@tollkeeper/api/http/settings'
import { rotateReceiptKeys, toReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { readEvidence } from '@tollkeeper/chain/evidence'
import { openServedNetworks, type ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { moveRecordHead, recordEvents } from '@tollkeeper/ledger/facts/record'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { createLogger } from '@tollkeeper/runtime/log'
import { boundNonce, type Challenge, feeNonce, maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { type NetworkName, networks } from '@tollkeeper/sdk/protocol/networks'
import { encodePayload, parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type Address, type Hash, keccak256, type TransactionReceipt, toHex } from 'viem'
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { createMigratedDatabase } from './database.ts'
import { createIndexTables, setIndexedHead } from './indexTables.ts'
import { shareChain } from './sharedChain.ts'
import { sendDirectly, signAuthorization, validFor } from './usdc.ts'

export const gatewayIssuer = 'https://gateway.example'
export const platformWallet: Address = '0x00000000000000000000000000000000000fee01'

export type TestGateway = {
  app: App
  /** Creates another gateway in this process, on the same database and chain. */
  another(overrides?: Partial<GatewaySettings>): App
  /** Creates another gateway in this process, with other parts. */
  withOptions(options: Partial<AppOptions>): App
  database: Database
  databaseUrl: string
  chain: LocalChain
  served: ServedNetwork
  settings: GatewaySettings
  /** Sets the gateway's time in Unix milliseconds; null resets it to the real time. */
  setNow(now: number | null): void
  /** Advances the index and the record to the chain's head. */
  index(): Promise<void>
  /** Creates an account with USDC. */
  buyer(usdc: bigint): Promise<PrivateKeyAccount>
  close(): Promise<void>
}

/** Settings of a test gateway: without limits, and with checks of balances. */
export const testGatewaySettings: GatewaySettings = {
  issuer: gatewayIssuer,
  platformWallet,
  feeSchedule: 'tiered',
  minimumPrices: {},
  macaroonSecrets: [{ kid: 'test', key: Buffer.alloc(32, 7) }],
  macaroonNotBefore: 0,
  offerTimeoutSeconds: 3_600,
  checkBalance: true,
  balanceTtlMs: 5_000,
  payerCaps: { payer: null, newPayer: null },
  tabs: {
    credit: { base: 1_000_000n, basisPoints: 1_000n },
    budget: 100_000_000n,
    rewardShare: 1_000,
    earnedHours: 1,
  },
  providerCap: null,
  contractTimeoutMs: 10_000,
  settleBeforeServe: null,
  settleBeforeServeTimeoutMs: 4_000,
  triggers: { ...defaultTriggers, minAgeMs: 0 },
  gasAllowance: 1_000_000_000n,
  gasPerFee: null,
  gasTokenUsd: 3_000_000_000n,
  priorityFeePerGas: 0n,
  maxIndexLagBlocks: 20n,
  publicQueue: true,
  retentionDays: 30,
  discovery: true,
  rateLimits: null,
  registration: { mode: 'open', limits: null },
  trustedProxies: 0,
  webhookAllowPrivate: true,
  operatorKeyHashes: [],
  mail: null,
  upstream: {
    allowPrivate: true,
    maxBodyBytes: 1_048_576,
    connectTimeoutMs: 10_000,
    answerTimeoutMs: 10_000,
    idleTimeoutMs: 10_000,
    uploadTimeoutMs: 10_000,
    concurrency: 100,
  },
  metricsToken: null,
  traceUrlTemplate: null,
  operator: { name: null, address: null, taxId: null },
  fiat: null,
}

/**
 * Starts the gateway on a real chain and a real database. Tests call the gateway without a server. The record is
 * empty and at the chain's head; the index tables are empty as well, so that tests can fill them.
 */
export async function startGateway(overrides: Partial<GatewaySettings> = {}): Promise<TestGateway> {
  const chain = await shareChain()
  const databaseUrl = await createMigratedDatabase()
  const database = openDatabase({ url: databaseUrl, max: 10, applicationName: 'test' })
  await createIndexTables(database)
  const deployment = chain.deployments.localhost
  if (deployment === undefined) throw new Error('the local chain has no deployment')
  const [served] = await openServedNetworks([
    { network: networks.localhost, deployment, rpcUrls: [chain.url] },
  ])
  if (served === undefined) throw new Error('the local chain is not served')

  const settings: GatewaySettings = { ...testGatewaySettings, ...overrides }
  let frozen: number | null = null
  const receiptKeys = toReceiptKeys(rotateReceiptKeys(undefined))
  const another = (more: Partial<GatewaySettings> = {}, options: Partial<AppOptions> = {}) =>
    createApp({
      sql: database,
      networks: [served],
      settings: { ...settings, ...more },
      receiptKeys,
      log: createLogger('test', 'error'),
      now: () => frozen ?? Date.now(),
      ...options,
    })

  const index = async () => {
    const { number, timestamp } = await served.client.getBlock()
    const { chainId } = served.network
    await setIndexedHead(database, { chainId, blockNumber: Number(number), blockTime: Number(timestamp) })
    await moveRecordHead(database, chainId, {
      blockNumber: number,
      readNumber: number,
      blockTime: timestamp,
    })
  }
  await index()

  return {
    app: another(),
    another,
    withOptions: (options) => another({}, options),
    database,
    databaseUrl,
    chain,
    served,
    settings,
    setNow: (now) => {
      frozen = now
    },
    index,
    async buyer(usdc) {
      const account = privateKeyToAccount(generatePrivateKey())
      if (usdc > 0n) await chain.mintUsdc([account.address], usdc)
      return account
    },
    close: () => database.end(),
  }
}

export type Answer<T = Record<string, unknown>> = { status: number; headers: Headers; body: T }

/** Sends a request and reads its JSON. */
export async function call<T = Record<string, unknown>>(
  app: App,
  method: string,
  path: string,
  options: { json?: unknown; text?: string; headers?: Record<string, string>; key?: string } = {},
): Promise<Answer<T>> {
  const { json, text, headers = {}, key } = options
  const body = text ?? (json === undefined ? undefined : JSON.stringify(json))
  const response = await app.request(path, {
    method,
    headers: {
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...headers,
    },
    ...(body !== undefined && { body }),
  })
  const answer = await response.text()
  const isJson = /json(;|$)/.test(response.headers.get('content-type') ?? '')
  return {
    status: response.status,
    headers: response.headers,
    body: (isJson ? JSON.parse(answer) : answer) as T,
  }
}

export type Shop = {
  providerId: string
  key: string
  walletId: string
  wallet: Address
  endpointId: string
  url: string
}

let shops = 0

/** Registers a provider with a wallet and one endpoint, through the API. */
export async function openShop(app: App, usdcPerUnit = '0.05', network?: NetworkName): Promise<Shop> {
  const n = ++shops
  const { body: provider } = await call<{ providerId: string; apiKey: string }>(app, 'POST', '/providers', {
    json: { name: `Shop ${n}` },
  })
  const key = provider.apiKey
  const wallet = `0x${keccak256(toHex(`shop ${n}`)).slice(26)}` as Address
  const at = `/providers/${provider.providerId}`
  const { body: registered } = await call<{ walletId: string }>(app, 'POST', `${at}/wallets`, {
    json: { network: network ?? 'localhost', address: wallet },
    key,
  })
  const url = `https://shop${n}.example/forecast`
  const { body: endpoint } = await call<{ endpointId: string }>(app, 'POST', `${at}/endpoints`, {
    json: { url, method: 'GET', pricing: { usdcPerUnit }, walletId: registered.walletId },
    key,
  })
  return {
    providerId: provider.providerId,
    key,
    walletId: registered.walletId,
    wallet,
    endpointId: endpoint.endpointId,
    url,
  }
}

export async function fetchChallenge(app: App, { providerId, endpointId }: Shop): Promise<Challenge> {
  const { status, body } = await call<Challenge>(app, 'POST', '/challenge', {
    json: { providerId, endpointId },
  })
  if (status !== 200) throw new Error(`no challenge: ${JSON.stringify(body)}`)
  return body
}

export type Change = Partial<SignedAuthorization> & { signer?: PrivateKeyAccount }

/** Signs one authorization of a challenge. `change` is applied before signing; a changed `signature` replaces the real one. */
export async function sign(
  served: ServedNetwork,
  payer: PrivateKeyAccount,
  challenge: Challenge,
  half: 0 | 1,
  { signer = payer, signature, ...change }: Change = {},
): Promise<SignedAuthorization> {
  const nonce = boundNonce(challenge.issuer, challenge.requestId)
  const message = {
    from: payer.address.toLowerCase() as Address,
    to: challenge.accepts[half].payTo,
    value: BigInt(challenge.accepts[half].maxAmountRequired),
    ...validFor(maxTimeoutSeconds),
    nonce: half === 0 ? nonce : feeNonce(nonce),
    ...change,
  }
  const signed = await signAuthorization(served, signer, message)
  return { ...signed, ...(signature !== undefined && { signature }) }
}

export type VerifyBody = {
  macaroon: string
  payloads: [string, string]
  providerId: string
  endpointId: string
}

/** Signs a challenge, and returns the body of `/verify`. */
export async function signedBody(
  gateway: TestGateway,
  shop: Shop,
  payer: PrivateKeyAccount,
  changes: [Change, Change] = [{}, {}],
): Promise<VerifyBody> {
  const challenge = await fetchChallenge(gateway.app, shop)
  const window = validFor(maxTimeoutSeconds)
  const halves = await Promise.all([
    sign(gateway.served, payer, challenge, 0, { ...window, ...changes[0] }),
    sign(gateway.served, payer, challenge, 1, { ...window, ...changes[1] }),
  ])
  return {
    macaroon: challenge.macaroon,
    payloads: [encodePayload(halves[0]), encodePayload(halves[1])],
    providerId: shop.providerId,
    endpointId: shop.endpointId,
  }
}

export type Paid = {
  paymentId: string
  receipt: string
  payer: PrivateKeyAccount
  payloads: [string, string]
}

/** Makes a new buyer with 1 USDC buy at the shop once. */
export async function pay(gateway: TestGateway, shop: Shop): Promise<Paid> {
  const payer = await gateway.buyer(1_000_000n)
  const json = await signedBody(gateway, shop, payer)
  const { status, body } = await call<{ paymentId: string; receipt: string }>(
    gateway.app,
    'POST',
    '/verify',
    {
      json,
    },
  )
  if (status !== 200) throw new Error(`not accepted: ${JSON.stringify(body)}`)
  return { ...body, payer, payloads: json.payloads }
}

/** Sends one authorization straight to USDC, as anyone may. Records it like a recorder that finds it in the index. */
export async function settleDirectly(
  gateway: TestGateway,
  payload: string,
): Promise<{ hash: Hash; blockHash: Hash; blockNumber: bigint }> {
  const hash = await sendDirectly(gateway, parsePayload(payload))
  const receipt = await gateway.served.client.waitForTransactionReceipt({ hash })
  await recordReceipt(gateway, receipt)
  const { blockNumber, blockHash } = receipt
  return { hash, blockHash, blockNumber }
}

/** Records what a transaction's receipt shows, as if the index had read it. */
export async function recordReceipt(gateway: TestGateway, receipt: TransactionReceipt): Promise<void> {
  const { served, database } = gateway
  const events = readEvidence(receipt, served, 1n)
  const scope = { chainId: served.network.chainId, token: served.token }
  await database.begin((tx) => recordEvents(tx, scope, events, 'index'))
  await gateway.index()
}
