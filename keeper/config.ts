import { readFileSync } from 'node:fs'
import type { Address, Hex } from 'viem'
import { ConfigError, type NetworkSettings, parseNetworkSettings } from '#chain/networkSettings'
import { defaultTriggers, type TriggerSettings } from '#ledger/triggers'
import { parseUsdc } from '#protocol/amount'

export type KeeperConfig = {
  databaseUrl: string
  networks: NetworkSettings[]
  /** Fee recipients whose transfers `POST /submit` takes for the platform's. */
  platformWallets: Address[]
  privateKeys: Hex[]
  host: string
  port: number
  logLevel: string
  triggers: TriggerSettings
  pollMs: number
  leaseMs: number
  maxIndexLagBlocks: bigint
  rebroadcastAfterMs: number
  replaceAfterMs: number
  priorityFeePerGas: bigint | null
  maxFeePerGas: bigint
  gasTokenUsd: bigint
  submitTimeoutMs: number
  /** Submissions a minute of an address without an API key. */
  keylessSubmitLimit: number
  trustedProxies: number
  facilitatorUrl: string | null
  facilitatorKey: string | null
}

export type Environment = Record<string, string | undefined>

/**
 * Reads the keeper's environment; see `.env.example` for what each variable means.
 *
 * @throws {ConfigError} naming the variable, what was expected and what came.
 */
export function parseKeeperConfig(env: Environment): KeeperConfig {
  const facilitatorUrl = readUrl(env, 'FACILITATOR_URL')
  const privateKeys = readPrivateKeys(env)
  if (privateKeys.length === 0 && facilitatorUrl === null) {
    throw new ConfigError(
      'KEEPER_PRIVATE_KEYS',
      'a private key, or several with commas between; or KEEPER_KEY_FILE',
    )
  }
  return {
    databaseUrl: readText(env, 'DATABASE_URL', 'postgres://…'),
    networks: parseNetworkSettings(env),
    platformWallets: readAddresses(env, 'PLATFORM_WALLET'),
    privateKeys,
    host: env.KEEPER_HOST ?? '127.0.0.1',
    port: readInteger(env, 'KEEPER_PORT', 4021, 0, 65_535),
    logLevel: env.LOG_LEVEL ?? 'info',
    triggers: parseTriggerSettings(env),
    pollMs: readInteger(env, 'KEEPER_POLL_MS', 250, 10),
    leaseMs: readInteger(env, 'KEEPER_LEASE_MS', 15_000, 1_000),
    maxIndexLagBlocks: BigInt(readInteger(env, 'INDEX_MAX_LAG_BLOCKS', 20, 1)),
    rebroadcastAfterMs: readInteger(env, 'REBROADCAST_AFTER_MS', 6_000, 100),
    replaceAfterMs: readInteger(env, 'REPLACE_AFTER_MS', 30_000, 100),
    priorityFeePerGas:
      env.PRIORITY_FEE_WEI === undefined ? null : BigInt(readInteger(env, 'PRIORITY_FEE_WEI', 0, 0)),
    maxFeePerGas: BigInt(readInteger(env, 'MAX_FEE_GWEI', 100, 1)) * 1_000_000_000n,
    gasTokenUsd: readUsdc(env, 'ETH_USD', 3_000_000_000n),
    submitTimeoutMs: readInteger(env, 'SUBMIT_TIMEOUT_MS', 25_000, 100),
    keylessSubmitLimit: readInteger(env, 'SUBMIT_RATE_LIMIT', 60, 0),
    trustedProxies: readInteger(env, 'TRUSTED_PROXIES', 0, 0, 10),
    facilitatorUrl,
    facilitatorKey: env.FACILITATOR_API_KEY ?? null,
  }
}

/** Thresholds of the triggers; the api reads them too, for its estimates. */
export function parseTriggerSettings(env: Environment): TriggerSettings {
  return {
    amount: readUsdc(env, 'TRIGGER_AMOUNT_USDC', defaultTriggers.amount),
    count: readInteger(env, 'TRIGGER_COUNT', defaultTriggers.count, 1),
    raisedAmount: readUsdc(env, 'TRIGGER_RAISED_AMOUNT_USDC', defaultTriggers.raisedAmount),
    raisedCount: readInteger(env, 'TRIGGER_RAISED_COUNT', defaultTriggers.raisedCount, 1),
    raisedAboveCost: readUsdc(env, 'TRIGGER_RAISED_ABOVE_USD', defaultTriggers.raisedAboveCost),
    timeMs: readInteger(env, 'TRIGGER_TIME_SECONDS', defaultTriggers.timeMs / 1000, 1, 3_600) * 1000,
    highValue: readHighValue(env),
    expiryLeadMs:
      readInteger(env, 'TRIGGER_EXPIRY_LEAD_SECONDS', defaultTriggers.expiryLeadMs / 1000, 1) * 1000,
  }
}

/** The queue's index of great payments starts here (ledger/migrations/0001_schema.sql). */
const leastHighValue = 1_000_000n

function readHighValue(env: Environment): bigint {
  const amount = readUsdc(env, 'TRIGGER_HIGH_VALUE_USDC', defaultTriggers.highValue)
  if (amount >= leastHighValue) return amount
  throw new ConfigError('TRIGGER_HIGH_VALUE_USDC', 'at least 1 USDC', env.TRIGGER_HIGH_VALUE_USDC)
}

function readText(env: Environment, name: string, expected: string): string {
  const text = env[name]
  if (!text) throw new ConfigError(name, expected)
  return text
}

export function readUrl(env: Environment, name: string): string | null {
  const text = env[name]
  if (!text) return null
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return text
  // It may carry a credential.
  throw new ConfigError(name, 'an http(s) URL', 'something else')
}

export function readInteger(
  env: Environment,
  name: string,
  fallback: number,
  min: number,
  max = Number.MAX_SAFE_INTEGER,
): number {
  const text = env[name]
  if (text === undefined || text === '') return fallback
  const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new ConfigError(name, `a whole number from ${min} to ${max}`, text)
}

export function readUsdc(env: Environment, name: string, fallback: bigint): bigint {
  const text = env[name]
  if (text === undefined || text === '') return fallback
  try {
    return parseUsdc(text)
  } catch {
    throw new ConfigError(name, 'a decimal with at most 6 decimals', text)
  }
}

function readAddresses(env: Environment, name: string): Address[] {
  const text = readText(
    env,
    name,
    'the address that receives the platform fees, or several with commas between',
  )
  return text.split(',').map((part) => {
    const address = part.trim().toLowerCase()
    if (!/^0x[0-9a-f]{40}$/.test(address)) throw new ConfigError(name, '0x-hex addresses', part)
    return address as Address
  })
}

export function readPrivateKeys(env: Environment): Hex[] {
  const file = env.KEEPER_KEY_FILE
  const variable = file ? 'KEEPER_KEY_FILE' : 'KEEPER_PRIVATE_KEYS'
  const keys = (file ? readKeyFile(file) : (env.KEEPER_PRIVATE_KEYS ?? ''))
    .split(/[\s,]+/)
    .filter((key) => key !== '')
  return [...new Set(keys)].map((key) => {
    const prefixed = key.startsWith('0x') ? key : `0x${key}`
    // What came is a secret, or part of one.
    if (!/^0x[0-9a-fA-F]{64}$/.test(prefixed))
      throw new ConfigError(variable, '32-byte hex keys', 'something else')
    return prefixed as Hex
  })
}

function readKeyFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    throw new ConfigError('KEEPER_KEY_FILE', 'the path of a readable file', path)
  }
}
