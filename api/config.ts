import { availableParallelism } from 'node:os'
import { isAddress } from 'viem'
import { ConfigError, type NetworkSettings, parseNetworkSettings } from '#chain/networkSettings'
import { parseTriggerSettings } from '#keeper/config'
import { parseUsdc } from '#protocol/amount'
import type { MacaroonSecret } from '#protocol/macaroon'
import { type NetworkName, networkNames } from '#protocol/networks'
import type { GatewaySettings } from './http/gateway.ts'

export type ApiConfig = {
  host: string
  port: number
  databaseUrl: string
  databasePool: number
  logLevel: LogLevel
  networks: NetworkSettings[]
  receiptKeyFile: string
  /** Whether a missing key file is made. */
  createReceiptKeys: boolean
  /** Threads that check payers' signatures; 0: the one that serves does. */
  signatureThreads: number
  gateway: GatewaySettings
}

const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const
type LogLevel = (typeof logLevels)[number]

type Env = Record<string, string | undefined>

/**
 * Reads the api's environment; the only place that does. `.env.example` says what each variable means.
 *
 * @throws {ConfigError} that names the variable, what was expected, and what came unless it is a secret.
 */
export function readConfig(env: Env): ApiConfig {
  const host = env.API_HOST || '127.0.0.1'
  const port = readInteger(env, 'API_PORT', 4020, 0, 65_535)
  return {
    host,
    port,
    databaseUrl: readDatabaseUrl(env),
    databasePool: readInteger(env, 'API_DATABASE_POOL', 10, 3, 1_000),
    logLevel: readChoice(env, 'LOG_LEVEL', logLevels, 'info'),
    networks: parseNetworkSettings(env),
    receiptKeyFile: receiptKeyFileOf(env),
    createReceiptKeys: env.NODE_ENV !== 'production',
    signatureThreads: readInteger(env, 'SIGNATURE_THREADS', Math.min(4, availableParallelism() - 1), 0, 64),
    gateway: {
      issuer: readPublicUrl(env, `http://${host.includes(':') ? `[${host}]` : host}:${port}`),
      platformWallet: readAddress(env, 'PLATFORM_WALLET'),
      feeSchedule: readChoice(env, 'FEE_SCHEDULE', ['tiered', 'flat'] as const, 'tiered'),
      minimumPrices: readMinimumPrices(env),
      macaroonSecrets: readMacaroonSecrets(env),
      macaroonNotBefore: readTime(env, 'MACAROON_NOT_BEFORE'),
      checkBalance: readChoice(env, 'BALANCE_CHECK', ['on', 'off'] as const, 'on') === 'on',
      balanceTtlMs: readInteger(env, 'BALANCE_TTL_MS', 30_000, 0, 60_000),
      payerCaps: {
        payer: readAmount(env, 'PAYER_UNSETTLED_CAP_USDC'),
        newPayer: readAmount(env, 'NEW_PAYER_UNSETTLED_CAP_USDC'),
      },
      providerCap: readAmount(env, 'PROVIDER_UNSETTLED_CAP_USDC'),
      contractTimeoutMs: readInteger(env, 'CONTRACT_WALLET_TIMEOUT_MS', 3_000, 100, 30_000),
      settleBeforeServe: readSettleBeforeServe(env),
      settleBeforeServeTimeoutMs: readInteger(env, 'SETTLE_BEFORE_SERVE_TIMEOUT_MS', 4_000, 500, 60_000),
      triggers: parseTriggerSettings(env),
      gasTokenUsd: readAmount(env, 'ETH_USD') ?? parseUsdc('3000'),
      priorityFeePerGas: env.PRIORITY_FEE_WEI
        ? BigInt(readInteger(env, 'PRIORITY_FEE_WEI', 0, 0, Number.MAX_SAFE_INTEGER))
        : null,
      publicQueue: readChoice(env, 'PUBLIC_QUEUE', ['true', 'false'] as const, 'true') === 'true',
      rateLimits:
        readChoice(env, 'RATE_LIMITS', ['on', 'off'] as const, 'on') === 'off'
          ? null
          : {
              challenge: readInteger(env, 'RATE_LIMIT_CHALLENGE', 6_000, 1, 1_000_000),
              verify: readInteger(env, 'RATE_LIMIT_VERIFY', 6_000, 1, 1_000_000),
              register: readInteger(env, 'RATE_LIMIT_REGISTER', 60, 1, 1_000_000),
              other: readInteger(env, 'RATE_LIMIT_OTHER', 6_000, 1, 1_000_000),
              payer: readInteger(env, 'RATE_LIMIT_PAYER', 1_200, 1, 1_000_000),
              keyFactor: readInteger(env, 'RATE_LIMIT_KEY_FACTOR', 10, 1, 1_000),
            },
      trustedProxies: readInteger(env, 'TRUSTED_PROXIES', 0, 0, 10),
      maxBodyBytes: readInteger(env, 'API_MAX_BODY_BYTES', 16_384, 8_192, 1_048_576),
      webhookAllowPrivate:
        readChoice(env, 'WEBHOOK_ALLOW_PRIVATE', ['true', 'false'] as const, 'false') === 'true',
      metricsToken: env.METRICS_TOKEN || null,
    },
  }
}

/** Where the keys of receipts are. */
export function receiptKeyFileOf(env: Env): string {
  return env.RECEIPT_KEY_FILE || '.tollkeeper/receipt-keys.json'
}

function readInteger(env: Env, name: string, fallback: number, minimum: number, maximum: number): number {
  const text = env[name]
  if (text === undefined || text === '') return fallback
  const value = Number(text)
  if (!/^\d{1,9}$/.test(text) || value < minimum || value > maximum) {
    throw new ConfigError(name, `a whole number from ${minimum} to ${maximum}`, JSON.stringify(text))
  }
  return value
}

function readChoice<const T extends readonly string[]>(
  env: Env,
  name: string,
  choices: T,
  fallback: T[number],
) {
  const text = env[name] || fallback
  const choice = choices.find((one) => one === text)
  if (choice === undefined) throw new ConfigError(name, `one of ${choices.join(', ')}`, JSON.stringify(text))
  return choice as T[number]
}

function readAmount(env: Env, name: string): bigint | null {
  const text = env[name]
  if (text === undefined || text === '') return null
  try {
    return parseUsdc(text)
  } catch {
    throw new ConfigError(name, 'a decimal amount with at most 6 decimals, like 12.50', JSON.stringify(text))
  }
}

function readSettleBeforeServe(env: Env): bigint | null {
  const name = 'SETTLE_BEFORE_SERVE_USDC'
  const price = readAmount(env, name)
  const { highValue } = parseTriggerSettings(env)
  // Below it, the keeper may let a payment wait for an hour.
  if (price !== null && price < highValue) {
    throw new ConfigError(
      name,
      'at least TRIGGER_HIGH_VALUE_USDC, from which on a payment settles at once',
      env[name],
    )
  }
  return price
}

function readMinimumPrices(env: Env): Partial<Record<NetworkName, bigint>> {
  const prices: Partial<Record<NetworkName, bigint>> = {}
  for (const network of networkNames) {
    const price = readAmount(env, `MINIMUM_PRICE_USDC_${network.toUpperCase().replaceAll('-', '_')}`)
    if (price !== null) prices[network] = price
  }
  return prices
}

function readAddress(env: Env, name: string) {
  const text = env[name]
  if (text === undefined || text === '') throw new ConfigError(name, 'an address')
  if (!isAddress(text, { strict: true })) {
    throw new ConfigError(name, 'an address, lower-case or rightly checksummed', JSON.stringify(text))
  }
  return text.toLowerCase() as `0x${string}`
}

function readDatabaseUrl(env: Env): string {
  const text = env.DATABASE_URL
  // The URL holds a password, so what came is not repeated.
  if (text === undefined || text === '')
    throw new ConfigError('DATABASE_URL', 'postgres://user:password@host:port/name')
  if (!URL.canParse(text) || !/^postgres(?:ql)?:$/.test(new URL(text).protocol)) {
    throw new ConfigError('DATABASE_URL', 'postgres://user:password@host:port/name', 'something else')
  }
  return text
}

function readPublicUrl(env: Env, fallback: string): string {
  const text = env.PUBLIC_URL || fallback
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.search !== '' || url.hash !== '') {
    throw new ConfigError(
      'PUBLIC_URL',
      'the http(s) URL that buyers and providers reach the gateway at',
      JSON.stringify(text),
    )
  }
  return url.href.replace(/\/+$/, '')
}

function readTime(env: Env, name: string): number {
  const text = env[name]
  if (text === undefined || text === '') return 0
  const time = Date.parse(text)
  if (!/^\d{4}-\d\d-\d\dT/.test(text) || Number.isNaN(time)) {
    throw new ConfigError(name, 'an ISO 8601 time like 2026-11-21T13:00:00Z', JSON.stringify(text))
  }
  return Math.floor(time / 1000)
}

const secretPattern = /^([A-Za-z0-9._-]{1,32}):([0-9a-fA-F]{64,128})$/

function readMacaroonSecrets(env: Env): MacaroonSecret[] {
  const name = 'MACAROON_SECRETS'
  const expected =
    'kid:hex with at least 32 bytes, several with commas between, the one that mints first (npx tollkeeper keys rotate macaroon makes one)'
  const text = env[name]
  if (text === undefined || text === '') throw new ConfigError(name, expected)
  const secrets = text.split(',').map((entry) => {
    const match = secretPattern.exec(entry.trim())
    if (match === null) throw new ConfigError(name, expected, 'something else')
    return { kid: match[1] as string, key: Buffer.from(match[2] as string, 'hex') }
  })
  if (new Set(secrets.map(({ kid }) => kid)).size !== secrets.length) {
    throw new ConfigError(name, 'key ids that differ', 'one twice')
  }
  return secrets
}
