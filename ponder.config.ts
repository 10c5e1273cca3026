import type { NetworkSettings } from '@tollkeeper/chain/networkSettings'
import { readIndexerConfig } from '@tollkeeper/indexer/config'
import { poolServer } from '@tollkeeper/indexer/poolServer'
import { filterNodes } from '@tollkeeper/indexer/rpcFilter'
import { endWhenSilent, heedLauncher } from '@tollkeeper/indexer/silence'
import { lostHostLimits } from '@tollkeeper/ledger/store/database'
import { batchSettlementAbi } from '@tollkeeper/sdk/protocol/abi/batchSettlement'
import { usdcAbi } from '@tollkeeper/sdk/protocol/abi/usdc'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { splitterAddress } from '@tollkeeper/sdk/protocol/splitter'
import { createConfig } from 'ponder'
import type { Address } from 'viem'

// Ponder keeps what it indexed only as long as the values of `contracts`, the schema and indexer/src stay the same;
// it notices no other change. So whatever decides what is indexed stands in this object, and the handlers import
// none of our code.

const { databaseUrl, networks, platformWallets, rpcLanes } = readIndexerConfig(process.env)
heedLauncher()

/** The networks that are served, typed as all of them: Ponder calls a handler only for a chain it was given. */
const perChain = <T>(value: (settings: NetworkSettings) => T) =>
  Object.fromEntries(networks.map((settings) => [settings.network.name, value(settings)])) as Record<
    NetworkName,
    T
  >

/** A node on this machine meters nothing. */
const ownNodeLanes = 16

const sessionSettings = {
  synchronous_commit: 'off',
  // Ponder's own limit for building a database index.
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
    // All of it can be read from the chain again. A crash of Postgres loses at most the newest commits, in their
    // order, and the checkpoint with them.
    // Sessions outlive the ten seconds between two heartbeats: where there are none, the process is gone.
    poolConfig: {
      ...server,
      // The last of two options with one name wins.
      options: [server.options, ...ownOptions].join(' '),
      idleTimeoutMillis: 60_000,
      keepAlive: true,
      // Then a probe a second, ten of them (libuv): else a host that is gone is asked after two hours of rest.
      keepAliveInitialDelayMillis: 5_000,
      // Not in Ponder's types, which names a few of the pool's options and passes on all.
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
    pollingInterval: rpcUrls.every(isLoopback) ? 100 : network.isOpStack ? 1_000 : 2_000,
    // A local chain is thrown away and started anew under the same id: keep as little of it as possible.
    disableCache: network.name === 'localhost',
  })),
  contracts: {
    /** And TabSettlement, which logs the same event. */
    BatchSettlement: {
      abi: batchSettlementAbi,
      chain: perChain(({ deployment }) => ({
        address: [deployment.batchSettlement, deployment.tabSettlement],
        startBlock: deployment.startBlock,
        // Anyone may settle any token; only USDC's logs mean anything to us.
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
    /** No contract of its own: where the platform's parts go, for the handlers. */
    Platform: {
      abi: [],
      chain: perChain(({ deployment }) => ({
        address: platformsOf(deployment),
        startBlock: deployment.startBlock,
      })),
    },
  },
  blocks: {
    /** When what no node could show is asked for again. From the head on: no block of the past is fetched for it. */
    Quarantine: {
      chain: perChain(({ network }) => ({
        startBlock: 'latest' as const,
        interval: network.name === 'localhost' ? 1 : 5,
      })),
    },
  },
})

/** Its wallets, and where its parts go when a wallet can't be paid: see contracts/interfaces/ISplitter.sol. */
function platformsOf({ splitterFactory: factory }: NetworkSettings['deployment']): Address[] {
  const ownSplitters = platformWallets.map((wallet) =>
    splitterAddress({ provider: wallet, platform: wallet, providerShare: 1n, platformShare: 0n, factory }),
  )
  return [...platformWallets, ...ownSplitters]
}

function isLoopback(url: string): boolean {
  return ['127.0.0.1', 'localhost', '[::1]'].includes(new URL(url).hostname)
}
