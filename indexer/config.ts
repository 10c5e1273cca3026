import { findDeployments } from '@tollkeeper/chain/deploymentsFile'
import { readNetworkSettings } from '@tollkeeper/chain/networkSettings'
import { readDatabaseUrls } from '@tollkeeper/ledger/store/pooler'
import { type Environment, readVariable, requireTogether, requireVariable } from '@tollkeeper/runtime/env'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'

export type IndexerSettings = ReturnType<typeof readIndexerSettings>

export type IndexerOptions = {
  databaseUrl: string
  /** RPC URLs by indexed network. Commas separate several URLs. */
  rpcUrls: { [network in NetworkName]?: string | undefined }
  /** Recipients of the platform's fees. */
  platformWallets: readonly Address[]
  /** Path of a deployments file. Default: the committed one. */
  deploymentsFile?: string | undefined
  /** Default 127.0.0.1. */
  host?: string | undefined
  /** Port of GraphQL. 0, the default, chooses a free one. */
  port?: number | undefined
  /** Schema of the tables. Default: a name that is derived from everything that decides the tables' contents. */
  schema?: string | undefined
  /**
   * Number of times that each RPC URL is passed to Ponder, which limits the rate of each entry. Default: 16 for a node on this machine, 1 for others.
   */
  rpcLanes?: number | null | undefined
  /** Interval in ms between checks whether a network that this start left out answers again. Default 15,000. */
  retryMs?: number | undefined
  /** Whether this process only answers GraphQL from another indexer's tables (`ponder serve`). Any number of readers may run. */
  isReader?: boolean | undefined
  /** `error`, `warn`, `info`, `debug` or `trace`. Default `warn`. */
  logLevel?: string | undefined
  /** Called with each line of the log, a JSON object. */
  onLog?: ((line: string) => void) | undefined
}

/** Reads the environment's settings for Ponder (ponder.config.ts) and its launcher (launch.ts). @throws {ConfigError} */
export function readIndexerSettings(env: Environment) {
  requireTogether(
    () => readDatabaseUrls(env),
    () => readNetworkSettings(env),
    () => requireVariable(env, 'PLATFORM_WALLET'),
  )
  return {
    /** The direct URL of Postgres, because Ponder doesn't work through a pooler in transaction mode. */
    databaseUrl: readDatabaseUrls(env).directDatabaseUrl,
    networks: readNetworkSettings(env),
    platformWallets: readPlatformWallets(env),
    /**
     * Number of times that each RPC URL is passed to Ponder. Ponder limits the rate of each entry separately, starting at 20 requests per second, so
     * more entries allow more requests. Null if the number depends on the URL.
     */
    rpcLanes: readVariable(env, 'INDEXER_RPC_LANES'),
  }
}

/** Reads the environment's settings for `npm run indexer` and the rebuild script. */
export function readIndexerOptions(env: Environment): IndexerOptions {
  const { databaseUrl, networks, platformWallets, rpcLanes } = readIndexerSettings(env)
  return {
    databaseUrl,
    rpcUrls: Object.fromEntries(networks.map(({ network, rpcUrls }) => [network.name, rpcUrls.join(',')])),
    platformWallets,
    deploymentsFile: findDeployments(env),
    host: readVariable(env, 'INDEXER_HOST'),
    port: readVariable(env, 'INDEXER_PORT'),
    rpcLanes,
    logLevel: readVariable(env, 'LOG_LEVEL'),
  }
}

/** Reads the recipients of platform fees. They are lower-case and sorted, so that a different order doesn't cause a new index. */
function readPlatformWallets(env: Environment): Address[] {
  const wallets = [requireVariable(env, 'PLATFORM_WALLET'), ...(readVariable(env, 'PLATFORM_WALLETS') ?? [])]
  return [...new Set(wallets)].sort()
}
