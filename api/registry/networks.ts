import { type ChainReads, createChainReads } from '@tollkeeper/chain/chainReads'
import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter, type GasMeter } from '@tollkeeper/chain/gasShares'
import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { createPayers, type Payers } from '@tollkeeper/ledger/acceptance/payers'
import type { Database } from '@tollkeeper/ledger/store/database'
import { networkNames } from '@tollkeeper/sdk/protocol/networks'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'
import { createPayees, type Payees } from './payees.ts'

/** A served network, and the cached state of its accounts. */
export type GatewayNetwork = {
  served: ServedNetwork
  reads: ChainReads
  payees: Payees
  payers: Payers
  /** Reads the network's gas price, and compares a payment's gas with its fee. */
  meter: GasMeter
  gasPerFee: bigint
}

/** The networks that this gateway serves. They can be looked up by name or chain id. */
export type GatewayNetworks = {
  readonly byChainId: ReadonlyMap<number, GatewayNetwork>
  /**
   * Returns the network with this name; without a name, the first network.
   *
   * @throws {Refusal} `unknown_network`, `network_not_served`
   */
  named(name: string | undefined): GatewayNetwork
  /** Returns the chain id of a named network, for a filter; undefined without a name. */
  chainIdNamed(name: string | undefined): number | undefined
  /**
   * Returns the network of a chain id in the database. The gateway may have stopped serving that network.
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

/** @param served The first network is the default for requests that name no network. */
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
    if (!networkNames.includes(name)) {
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
        throw new Refusal('network_not_served', `Chain ${chainId} is no longer served`)
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
