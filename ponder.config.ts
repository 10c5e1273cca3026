import type { NetworkSettings } from '@tollkeeper/chain/networkSettings'
import { readIndexerSettings } from '@tollkeeper/indexer/config'
import { poolServer } from '@tollkeeper/indexer/poolServer'
import { filterNodes } from '@tollkeeper/indexer/rpcFilter'
import { endWhenSilent, listenToParent } from '@tollkeeper/indexer/silence'
import { lostHostLimits } from '@tollkeeper/ledger/store/database'
import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import { createConfig } from 'ponder'
import type { Address } from 'viem'

// Ponder keeps its index as long as the values of `contracts`, the schema and indexer/src stay the same, and notices no other change. So
// everything that decides what is indexed must be in this object, and the handlers import none of our other code.

const { databaseUrl, networks, platformWallets, rpcLanes } = readIndexerSettings(process.env)
listenToParent()

/**
 * Returns a value for each served network, by the network's name. The type claims a value for every network. That is safe, because Ponder calls
 * handlers only for the chains that are configured here.
 */
const perChain = <T>(value: (settings: NetworkSettings) => T) =>
  Object.fromEntries(networks.map((settings) => [settings.network.name, value(settings)])) as Record<
    NetworkName,
    T
  >

/** Number of times that a local node's URL is passed to Ponder. A local node has no rate limit. */
const ownNodeLanes = 16

const sessionSettings = {
  synchronous_commit: 'off',
  // Ponder's limit for building a database index.
  transaction_timeout: '1h',
  ...lostHostLimits,
}
const ownOptions = Object.entries(sessionSettings).map(([name, value]) => `-c ${name}=${value}`)
const server = await poolServer(databaseUrl)

const nodes = networks.flatMap(({ network, deployment, rpcUrls }) =>
  rpcUrls.map((url) => ({
    url,
    others: rpcUrls.filter((other) => other !== url),
    network: network.name,
    settlements: [deployment.batchSettlement, deployment.tabSettlement],
    token: deployment.usdc,
    platforms: platformsOf(deployment),
  })),
)
const filteredUrls = filterNodes(nodes)

export default createConfig({
  database: {
    kind: 'postgres',
    // Commits needn't be durable (synchronous_commit), because everything can be read from the chain again. A crash of Postgres loses at
    // most the newest commits, and the checkpoint with them.
    // Idle sessions must outlast the ten seconds between two heartbeats, because a process without sessions is considered gone.
    poolConfig: {
      ...server,
      // Our options come last, because the last option with a name wins.
      options: [server.options, ...ownOptions].join(' '),
      idleTimeoutMillis: 60_000,
      keepAlive: true,
      // After this time without traffic, libuv sends ten probes, one per second. Without it, a lost host is only noticed after two hours.
      keepAliveInitialDelayMillis: 5_000,
      // Ponder passes on all options of the pool, but its types only name a few.
      onConnect: endWhenSilent,
    },
  },
  ordering: 'multichain',
  chains: perChain(({ network, rpcUrls }) => ({
    id: network.chainId,
    rpc: nodes.flatMap(({ url, network: name }, i) => {
      const lanes = rpcLanes ?? (isLoopback(url) ? ownNodeLanes : 1)
      return name === network.name ? Array<string>(lanes).fill(filteredUrls[i] ?? '') : []
    }),
    pollingInterval: rpcUrls.every(isLoopback) ? 100 : network.blockTimeMs > 2_000 ? 2_000 : 1_000,
    // A local chain is often replaced by a new one with the same id, so cache as little of it as possible.
    disableCache: network.name === 'localhost',
  })),
  contracts: {
    /** BatchSettlement and TabSettlement, which log the same event. */
    BatchSettlement: {
      abi: batchSettlementAbi,
      chain: perChain(({ deployment }) => ({
        address: [deployment.batchSettlement, deployment.tabSettlement],
        startBlock: deployment.startBlock,
        // Anyone may settle any token, but only batches of USDC matter.
        filter: { event: 'BatchSettled' as const, args: { token: deployment.usdc } },
      })),
    },
    Usdc: {
      abi: usdcAbi,
      chain: perChain(({ deployment }) => ({
        address: deployment.usdc,
        startBlock: deployment.startBlock,
        filter: {
          event: 'Transfer' as const,
          args: { to: platformsOf(deployment) },
        },
      })),
    },
    /** No contract: it passes the recipients of the platform's parts to the handlers. */
    Platform: {
      abi: [],
      chain: perChain(({ deployment }) => ({
        address: platformsOf(deployment),
        startBlock: deployment.startBlock,
      })),
    },
  },
  blocks: {
    /** The interval at which index gaps are read again. It starts at the head, so that no past blocks are fetched for it. */
    IndexGap: {
      chain: perChain(({ network }) => ({
        startBlock: 'latest' as const,
        interval: network.name === 'localhost' ? 1 : 5,
      })),
    },
  },
})

/**
 * Returns the addresses that receive fees: the platform's wallets, and for each wallet the splitter that is paid instead while the token refuses
 * transfers to the wallet (contracts/interfaces/ISplitter.sol).
 */
function platformsOf({ splitterFactory: factory }: NetworkSettings['deployment']): Address[] {
  const ownSplitters = platformWallets.map((wallet) =>
    splitterAddress({ provider: wallet, platform: wallet, providerShare: 1n, platformShare: 0n, factory }),
  )
  return [...platformWallets, ...ownSplitters]
}

function isLoopback(url: string): boolean {
  return ['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url).hostname)
}
