import type { Address } from 'viem'
import { type NetworkSettings, readNetworkSettings } from '#chain/networkSettings'
import { type Environment, readVariable, requireVariable } from '#process/env'
import type { IndexerOptions } from './launch.ts'

/** What the environment says; read by Ponder (ponder.config.ts) and by what starts it (launch.ts). */
export type IndexerConfig = {
  databaseUrl: string
  networks: NetworkSettings[]
  /** Recipients of platform fees, lower-case, sorted: their order is no reason to index anew. */
  platformWallets: Address[]
  /** How many times an RPC URL is handed to Ponder; each gets a rate limit of its own, which starts at 20 requests a second. */
  rpcLanes: number
}

/** @throws {ConfigError} */
export function readIndexerConfig(env: Environment): IndexerConfig {
  return {
    databaseUrl: requireVariable(env, 'DATABASE_URL'),
    networks: readNetworkSettings(env),
    platformWallets: readPlatformWallets(env),
    rpcLanes: readVariable(env, 'INDEXER_RPC_LANES'),
  }
}

/** What `npm run indexer` and the rebuild script are told by the environment. */
export function readIndexerOptions(env: Environment): IndexerOptions {
  const { databaseUrl, networks, platformWallets, rpcLanes } = readIndexerConfig(env)
  return {
    databaseUrl,
    rpcUrls: Object.fromEntries(networks.map(({ network, rpcUrls }) => [network.name, rpcUrls.join(',')])),
    platformWallets,
    deploymentsFile: readVariable(env, 'DEPLOYMENTS_FILE') ?? undefined,
    host: readVariable(env, 'INDEXER_HOST'),
    port: readVariable(env, 'INDEXER_PORT'),
    schema: readVariable(env, 'DATABASE_SCHEMA') ?? undefined,
    rpcLanes,
    logLevel: readVariable(env, 'LOG_LEVEL'),
  }
}

function readPlatformWallets(env: Environment): Address[] {
  const wallets = [requireVariable(env, 'PLATFORM_WALLET'), ...(readVariable(env, 'PLATFORM_WALLETS') ?? [])]
  return [...new Set(wallets)].sort()
}
