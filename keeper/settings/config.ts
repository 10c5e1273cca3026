import { readFileSync } from 'node:fs'
import type { Hex } from 'viem'
import { readNetworkSettings, readPriorityFee } from '#chain/networkSettings'
import { readTriggerSettings } from '#ledger/queue/triggers'
import { readDatabaseUrls } from '#ledger/store/pooler'
import { ConfigError, type Environment, parseText, readVariable, requireVariable } from '#process/env'
import { variables } from '#process/variables'
import type { KeeperSettings } from './settings.ts'

/**
 * Reads the keeper's environment; process/variables.ts says what each variable means.
 *
 * @throws {ConfigError} that names the variable, what was expected, and what came unless it is a secret.
 */
export function readKeeperConfig(env: Environment) {
  const privateKeys = requirePrivateKeys(env)
  const platformWallets = [
    requireVariable(env, 'PLATFORM_WALLET'),
    ...(readVariable(env, 'PLATFORM_WALLETS') ?? []),
  ]
  return {
    ...readDatabaseUrls(env),
    networks: readNetworkSettings(env),
    /** Fee recipients whose transfers `POST /submit` takes for the platform's. */
    platformWallets: [...new Set(platformWallets)],
    privateKeys,
    host: readVariable(env, 'KEEPER_HOST'),
    port: readVariable(env, 'KEEPER_PORT'),
    logLevel: readVariable(env, 'LOG_LEVEL'),
    settings: {
      triggers: readTriggerSettings(env),
      pollMs: readVariable(env, 'KEEPER_POLL_MS') ?? 250,
      leaseMs: readVariable(env, 'KEEPER_LEASE_MS'),
      maxIndexLagBlocks: BigInt(readVariable(env, 'INDEX_MAX_LAG_BLOCKS')),
      ...readSendingSettings(env),
      gasAllowance: readVariable(env, 'GAS_ALLOWANCE_USD'),
    } satisfies KeeperSettings,
    submitLimits: { perCaller: readVariable(env, 'SUBMIT_RATE_LIMIT') },
    facilitator: {
      isOpen: readVariable(env, 'FACILITATOR_OPEN'),
      fee: readVariable(env, 'FACILITATOR_FEE'),
      maxOpen: readVariable(env, 'FACILITATOR_MAX_OPEN'),
    },
    tabs: {
      databaseUrl: readVariable(env, 'TABS_DATABASE_URL'),
      credit: readVariable(env, 'TAB_CREDIT_USDC'),
      minimumPrices: Object.fromEntries(readVariable(env, 'MINIMUM_PRICES_USDC') ?? []),
    },
    trustedProxies: readVariable(env, 'TRUSTED_PROXIES'),
    metricsToken: readVariable(env, 'METRICS_TOKEN'),
  }
}

/** What every keeper is told of sending transactions. */
export function readSendingSettings(env: Environment) {
  return {
    rebroadcastAfterMs: readVariable(env, 'REBROADCAST_AFTER_MS'),
    replaceAfterMs: readVariable(env, 'REPLACE_AFTER_MS'),
    priorityFeePerGas: readPriorityFee(env),
    maxFeePerGas: toBigInt(readVariable(env, 'MAX_FEE_GWEI'), 1_000_000_000n),
    gasPerFee: toBigInt(readVariable(env, 'MAX_GAS_PER_FEE')),
    dailyBudget: readVariable(env, 'KEEPER_DAILY_BUDGET_USD'),
    gasTokenUsd: readVariable(env, 'ETH_USD'),
  }
}

function toBigInt(value: number | null, unit = 1n): bigint | null {
  return value === null ? null : BigInt(value) * unit
}

/**
 * As {@link readPrivateKeys}, for whoever can't do without.
 *
 * @throws {ConfigError} also where neither variable is set.
 */
export function requirePrivateKeys(env: Environment): Hex[] {
  const privateKeys = readPrivateKeys(env)
  if (privateKeys.length === 0) {
    throw new ConfigError(
      'KEEPER_PRIVATE_KEYS',
      'a private key, or several with commas between; or KEEPER_KEY_FILE',
    )
  }
  return privateKeys
}

/** Keys of the gas wallets, from the file if one is named; none where neither variable is set. */
export function readPrivateKeys(env: Environment): Hex[] {
  const file = readVariable(env, 'KEEPER_KEY_FILE')
  if (file === null) return readVariable(env, 'KEEPER_PRIVATE_KEYS') ?? []
  return parseText('KEEPER_KEY_FILE', readKeyFile(file), variables.KEEPER_PRIVATE_KEYS.parser)
}

function readKeyFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    throw new ConfigError('KEEPER_KEY_FILE', 'the path of a readable file', path)
  }
}
