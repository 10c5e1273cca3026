import { findDeployments } from '@tollkeeper/chain/deploymentsFile'
import { readNetworkSettings } from '@tollkeeper/chain/networkSettings'
import { readDatabaseUrls } from '@tollkeeper/ledger/store/pooler'
import { type Environment, readVariable, requireTogether, requireVariable } from '@tollkeeper/runtime/env'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'

export type IndexerConfig = ReturnType<typeof readIndexerConfig>

export type IndexerOptions = {
  databaseUrl: string
  /** By network that is to be indexed; commas separate several URLs. */
  rpcUrls: { [network in NetworkName]?: string | undefined }
  /** Recipients of the platform's fees. */
  platformWallets: readonly Address[]
  /** Path of a deployments file. Default: the committed one. */
  deploymentsFile?: string | undefined
  /** Default 127.0.0.1. */
  host?: string | undefined
  /** Of GraphQL. 0, the default, takes a free one. */
  port?: number | undefined
  /** Schema of the tables. Default: a name that is derived from its contents. */
  schema?: string | undefined
  /** See {@link readIndexerConfig}. Default: 16 for a node on this machine, 1 for others. */
  rpcLanes?: number | null | undefined
  /** How long until a network that was left out of a start is asked again. Default 15,000 ms. */
  retryMs?: number | undefined
  /** Only answers GraphQL, from the tables of another indexer (`ponder serve`); any number of these may run. */
  isReader?: boolean | undefined
  /** `error`, `warn`, `info`, `debug` or `trace`. Default `warn`. */
  logLevel?: string | undefined
  /** Called with each line of the log, a JSON object. */
  onLog?: ((line: string) => void) | undefined
}

/** The environment's settings, for Ponder (ponder.config.ts) and for its launcher (launch.ts). @throws {ConfigError} */
export function readIndexerConfig(env: Environment) {
  requireTogether(
    () => readDatabaseUrls(env),
    () => readNetworkSettings(env),
    () => requireVariable(env, 'PLATFORM_WALLET'),
  )
  return {
    /** Postgres' own URL: Ponder can't work through a pooler in transaction mode. */
    databaseUrl: readDatabaseUrls(env).directDatabaseUrl,
    networks: readNetworkSettings(env),
    platformWallets: readPlatformWallets(env),
    /** How many times Ponder gets an RPC URL, each with a rate limit of its own that starts at 20 requests a second. null: by URL. */
    rpcLanes: readVariable(env, 'INDEXER_RPC_LANES'),
  }
}

/** The environment's settings for `npm run indexer` and the rebuild script. */
export function readIndexerOptions(env: Environment): IndexerOptions {
  const { databaseUrl, networks, platformWallets, rpcLanes } = readIndexerConfig(env)
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

/** Recipients of platform fees, lower-case and sorted, so that their order causes no new index. */
function readPlatformWallets(env: Environment): Address[] {
  const wallets = [requireVariable(env, 'PLATFORM_WALLET'), ...(readVariable(env, 'PLATFORM_WALLETS') ?? [])]
  return [...new Set(wallets)].sort()
}
