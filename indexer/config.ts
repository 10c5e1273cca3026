import { getAddress, isAddress } from 'viem'
import { ConfigError, type NetworkSettings, parseNetworkSettings } from '#chain/networkSettings'
import type { IndexerOptions } from './launch.ts'

/** What the environment says; read by Ponder (ponder.config.ts) and by what starts it (launch.ts). */
export type IndexerConfig = {
  databaseUrl: string
  networks: NetworkSettings[]
  /** Recipients of platform fees, lower-case, sorted: their order is no reason to index anew. */
  platformWallets: `0x${string}`[]
  /** How many times an RPC URL is handed to Ponder; each gets a rate limit of its own, which starts at 20 requests a second. */
  rpcLanes: number
}

export function parseIndexerConfig(env: Record<string, string | undefined>): IndexerConfig {
  const databaseUrl = env.DATABASE_URL
  // It carries a password, so what came is not repeated.
  if (!databaseUrl) throw new ConfigError('DATABASE_URL', 'a postgres:// URL')
  if (!/^postgres(ql)?:\/\//.test(databaseUrl)) {
    throw new ConfigError('DATABASE_URL', 'a postgres:// URL', 'something else')
  }
  return {
    databaseUrl,
    networks: parseNetworkSettings(env),
    platformWallets: parsePlatformWallets(env),
    rpcLanes: parseRpcLanes(env.INDEXER_RPC_LANES),
  }
}

/** What `npm run indexer` and the rebuild script are told by the environment. */
export function parseIndexerOptions(env: Record<string, string | undefined>): IndexerOptions {
  const { databaseUrl, networks, platformWallets, rpcLanes } = parseIndexerConfig(env)
  return {
    databaseUrl,
    rpcUrls: Object.fromEntries(networks.map(({ network, rpcUrls }) => [network.name, rpcUrls.join(',')])),
    platformWallets,
    deploymentsFile: env.DEPLOYMENTS_FILE,
    host: env.INDEXER_HOST || undefined,
    port: parsePort(env.INDEXER_PORT),
    schema: parseSchema(env, 'DATABASE_SCHEMA'),
    rpcLanes,
    logLevel: parseLogLevel(env.LOG_LEVEL),
  }
}

function parsePlatformWallets(env: Record<string, string | undefined>): `0x${string}`[] {
  const variable = env.PLATFORM_WALLETS ? 'PLATFORM_WALLETS' : 'PLATFORM_WALLET'
  const wallets = (env[variable] ?? '')
    .split(',')
    .map((text) => text.trim())
    .filter((text) => text !== '')
  const expected = 'the address that receives the fees (PLATFORM_WALLETS: several, with commas between)'
  if (wallets.length === 0) throw new ConfigError(variable, expected)
  const lowerCase = wallets.map((wallet) => {
    if (!isAddress(wallet, { strict: wallet !== wallet.toLowerCase() })) {
      throw new ConfigError(variable, expected, wallet)
    }
    return getAddress(wallet).toLowerCase() as `0x${string}`
  })
  return [...new Set(lowerCase)].sort()
}

function parseRpcLanes(text: string | undefined): number {
  if (text === undefined || text === '') return 1
  if (!/^([1-9]|[12]\d|3[0-2])$/.test(text)) {
    throw new ConfigError('INDEXER_RPC_LANES', 'an integer from 1 to 32', text)
  }
  return Number(text)
}

function parsePort(text = '42069'): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) {
    throw new ConfigError('INDEXER_PORT', 'a port number (0: any free one)', text)
  }
  return Number(text)
}

function parseSchema(env: Record<string, string | undefined>, variable: string): string | undefined {
  const name = env[variable]
  if (name === undefined || name === '') return undefined
  // Ponder's own limit, which leaves room for the names that it derives.
  if (!/^[a-z_][a-z0-9_]{0,44}$/.test(name)) {
    throw new ConfigError(
      variable,
      'a schema name of at most 45 lower-case letters, digits and underscores',
      name,
    )
  }
  return name
}

function parseLogLevel(text = 'info'): string {
  const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']
  if (!levels.includes(text)) throw new ConfigError('LOG_LEVEL', `one of ${levels.join(', ')}`, text)
  return text
}
