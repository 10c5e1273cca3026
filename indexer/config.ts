import type { Address } from 'viem'
import { findDeployments } from '#chain/deploymentsFile'
import { readNetworkSettings } from '#chain/networkSettings'
import { readDatabaseUrls } from '#ledger/store/pooler'
import { type Environment, readVariable, requireVariable } from '#process/env'
import type { NetworkName } from '#protocol/networks'

export type IndexerConfig = ReturnType<typeof readIndexerConfig>

export type IndexerOptions = {
  databaseUrl: string
  /** Of every network that is to be indexed; several URLs of one with commas between. */
  rpcUrls: { [network in NetworkName]?: string | undefined }
  /** Recipients of the platform's fees. */
  platformWallets: readonly Address[]
  /** Path of a deployments file. Default: the committed one. */
  deploymentsFile?: string | undefined
  /** Default 127.0.0.1. */
  host?: string | undefined
  /** Of GraphQL. 0, the default, takes a free one. */
  port?: number | undefined
  /** Schema of the tables. Default: one that is named after what stands in it. */
  schema?: string | undefined
  /** See {@link readIndexerConfig}. Default: 16 for a node on this machine, 1 for others. */
  rpcLanes?: number | null | undefined
  /** How long to wait before a network that was left out of a start is asked again. Default 15,000 ms. */
  retryMs?: number | undefined
  /** Only answers GraphQL, from what another indexer writes (`ponder serve`); any number of them may run. */
  isReader?: boolean | undefined
  /** `error`, `warn`, `info`, `debug` or `trace`. Default `warn`. */
  logLevel?: string | undefined
  /** One JSON object a line. */
  onLog?: ((line: string) => void) | undefined
}

/** What the environment says; for Ponder (ponder.config.ts) and for what starts it (launch.ts). @throws {ConfigError} */
export function readIndexerConfig(env: Environment) {
  return {
    /** Of Postgres itself: Ponder works through no pooler in transaction mode. */
    databaseUrl: readDatabaseUrls(env).directDatabaseUrl,
    networks: readNetworkSettings(env),
    platformWallets: readPlatformWallets(env),
    /** How many times an RPC URL is handed to Ponder; each gets a rate limit of its own, which starts at 20 requests a second. null: by URL. */
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
    deploymentsFile: findDeployments(env),
    host: readVariable(env, 'INDEXER_HOST'),
    port: readVariable(env, 'INDEXER_PORT'),
    schema: readVariable(env, 'DATABASE_SCHEMA') ?? undefined,
    rpcLanes,
    logLevel: readVariable(env, 'LOG_LEVEL'),
  }
}

/** Recipients of platform fees, lower-case, sorted: their order is no reason to index anew. */
function readPlatformWallets(env: Environment): Address[] {
  const wallets = [requireVariable(env, 'PLATFORM_WALLET'), ...(readVariable(env, 'PLATFORM_WALLETS') ?? [])]
  return [...new Set(wallets)].sort()
}
