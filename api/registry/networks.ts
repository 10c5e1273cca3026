import { type ChainReads, createChainReads } from '@tollkeeper/chain/chainReads'
import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter, type GasMeter } from '@tollkeeper/chain/gasShares'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createPayers, type Payers } from '@tollkeeper/ledger/acceptance/payers'
import type { Database } from '@tollkeeper/ledger/store/database'
import { isNetworkName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { createPayees, type Payees } from './payees.ts'

/** A served network, and the cached state of its accounts. */
export type GatewayNetwork = {
  served: ServedNetwork
  reads: ChainReads
  payees: Payees
  payers: Payers
  /** The price of gas there, and how many times its fee a payment's gas may cost. */
  meter: GasMeter
  gasPerFee: bigint
}

/** The networks that this gateway serves, by name or chain id. */
export type GatewayNetworks = {
  readonly byChainId: ReadonlyMap<number, GatewayNetwork>
  /**
   * The network of a name; without a name, the first one.
   *
   * @throws {Refusal} `unknown_network`, `network_not_served`
   */
  named(name: string | undefined): GatewayNetwork
  /** The chain id of a name, for a filter; undefined without a name. */
  chainIdNamed(name: string | undefined): number | undefined
  /**
   * The network of a chain id in our tables. It may have been served once but no longer.
   *
   * @throws {Refusal} `network_not_served`
   */
  ofChain(chainId: number): GatewayNetwork
}

export type GatewayNetworksOptions = {
  sql: Database
  settings: Pick<
    GatewaySettings,
    | 'platformWallet'
    | 'checkBalance'
    | 'payerCaps'
    | 'balanceTtlMs'
    | 'tabs'
    | 'gasPerFee'
    | 'gasTokenUsd'
    | 'priorityFeePerGas'
  >
  now: () => number
}

/** @param served The first one is the default if a request names none. */
export function createGatewayNetworks(
  served: ServedNetwork[],
  options: GatewayNetworksOptions,
): GatewayNetworks {
  const networks = served.map((network) => createGatewayNetwork(network, options))
  const byChainId = new Map(networks.map((network) => [network.served.network.chainId, network]))
  const [first] = networks
  if (first === undefined) throw new TypeError('A gateway needs at least one network')

  function named(name: string | undefined): GatewayNetwork {
    if (name === undefined) return first as GatewayNetwork
    if (!isNetworkName(name)) {
      const expected = networkNames.join(', ')
      throw new Refusal('unknown_network', `Expected one of ${expected}, got "${name.slice(0, 80)}"`)
    }
    const network = networks.find(({ served }) => served.network.name === name)
    if (network === undefined) {
      throw new Refusal('network_not_served', `${name} is not served by this gateway`)
    }
    return network
  }

  return {
    byChainId,
    named,
    chainIdNamed: (name) => (name === undefined ? undefined : named(name).served.network.chainId),
    ofChain(chainId) {
      const network = byChainId.get(chainId)
      if (network === undefined) {
        throw new Refusal('network_not_served', `Chain ${chainId} is not served any more`)
      }
      return network
    },
  }
}

function createGatewayNetwork(
  served: ServedNetwork,
  { sql, settings, now }: GatewayNetworksOptions,
): GatewayNetwork {
  const { platformWallet, checkBalance, payerCaps: caps, balanceTtlMs, tabs } = settings
  const reads = createChainReads(served)
  const limits = gasLimitsOf(served.network, settings)
  return {
    served,
    reads,
    meter: createGasMeter(served, { ...settings, ...limits }, () => new Date(now())),
    gasPerFee: limits.gasPerFee,
    payees: createPayees(served, platformWallet, now),
    payers: createPayers(served, reads, {
      database: sql,
      checkBalance,
      caps,
      balanceTtlMs,
      now,
      tabCredit: tabs?.credit,
    }),
  }
}
