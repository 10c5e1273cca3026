import type { Address } from 'viem'
import committed from './deployments.json' with { type: 'json' }
import { isNetworkName, type Network, type NetworkName, networkNames } from './networks.ts'

/** The addresses of our contracts on a network, in lower-case. */
export type Deployment = {
  batchSettlement: Address
  splitterFactory: Address
  tabSettlement: Address
  usdc: Address
  /** The block that created BatchSettlement. Earlier blocks contain none of our events. */
  startBlock: number
}

export type Deployments = Partial<Record<NetworkName, Deployment>>

const addressPattern = /^0x[0-9a-fA-F]{40}$/

/**
 * Reads a deployments file:
 * `{ "<network>": { "batchSettlement": "0x…", "splitterFactory": "0x…", "tabSettlement": "0x…", "usdc": "0x…", "startBlock": 123 } }`.
 *
 * Skips a network whose `startBlock` is null: CREATE2 gives our contracts the same addresses on every network, but they aren't deployed there yet.
 * Ignores unknown fields.
 *
 * @throws {TypeError} whose message contains the network and the wrong field.
 */
export function parseDeployments(json: unknown): Deployments {
  if (typeof json !== 'object' || json === null)
    throw new TypeError('Deployments: expected an object with one entry for each network')
  const deployments: Deployments = {}
  for (const [name, entry] of Object.entries(json)) {
    if (!isNetworkName(name))
      throw new TypeError(
        `Deployments: ${name} is not one of ${networkNames.join(', ')}. To use another network, describe it in NETWORKS_FILE`,
      )
    const deployment = parseDeployment(name, entry)
    if (deployment) deployments[name] = deployment
  }
  return deployments
}

/** The deployments in this version's committed file. */
export const committedDeployments: Deployments = /* @__PURE__ */ parseDeployments(committed)

/**
 * Returns the contract addresses of this version on a network, even if no deployment is recorded there. Use it in programs that don't need the start
 * block.
 */
export function commonDeployment({ usdc }: Pick<Network, 'usdc'>): Deployment {
  const { batchSettlement, splitterFactory, tabSettlement } = committed.base
  const addresses = {
    batchSettlement,
    splitterFactory,
    tabSettlement,
    usdc: usdc ?? committed.localhost.usdc,
  }
  return parseDeployment('common', { ...addresses, startBlock: 0 }) as Deployment
}

/** The `SplitterFactory` of this version. CREATE2 gives it the same address on every network. */
export const splitterFactory = committed.base.splitterFactory as Address

/** The `TabSettlement` of this version. CREATE2 gives it the same address on every network. */
export const tabSettlement = committed.base.tabSettlement as Address

function parseDeployment(name: string, entry: unknown): Deployment | undefined {
  const { startBlock, ...addresses } = (entry ?? {}) as Record<string, unknown>
  const address = (field: string): Address => {
    const value = addresses[field]
    if (typeof value !== 'string' || !addressPattern.test(value)) {
      throw new TypeError(`Deployments: ${name}.${field} must be an address, got ${JSON.stringify(value)}`)
    }
    return value.toLowerCase() as Address
  }
  if (startBlock === null) return undefined
  if (typeof startBlock !== 'number' || !Number.isSafeInteger(startBlock) || startBlock < 0) {
    throw new TypeError(
      `Deployments: ${name}.startBlock must be a block number, got ${JSON.stringify(startBlock)}`,
    )
  }
  return {
    batchSettlement: address('batchSettlement'),
    splitterFactory: address('splitterFactory'),
    tabSettlement: address('tabSettlement'),
    usdc: address('usdc'),
    startBlock,
  }
}
