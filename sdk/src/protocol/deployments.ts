import type { Address } from 'viem'
import committed from './deployments.json' with { type: 'json' }
import { isNetworkName, type NetworkName, networkNames } from './networks.ts'

/** Where our contracts are deployed on a network. Addresses are lower-case. */
export type Deployment = {
  batchSettlement: Address
  splitterFactory: Address
  tabSettlement: Address
  usdc: Address
  /** The block that created BatchSettlement. Earlier ones hold nothing of ours. */
  startBlock: number
}

export type Deployments = Partial<Record<NetworkName, Deployment>>

const addressPattern = /^0x[0-9a-fA-F]{40}$/

/**
 * Reads a deployments file:
 * `{ "<network>": { "batchSettlement": "0x…", "splitterFactory": "0x…", "tabSettlement": "0x…", "usdc": "0x…", "startBlock": 123 } }`.
 *
 * Leaves out a network whose `startBlock` is null: CREATE2 reserves the same addresses on every network, but nothing is
 * deployed there yet. Drops unknown fields.
 *
 * @throws {TypeError} It names the network and the wrong field.
 */
export function parseDeployments(json: unknown): Deployments {
  if (typeof json !== 'object' || json === null)
    throw new TypeError('Deployments: expected an object by network')
  const deployments: Deployments = {}
  for (const [name, entry] of Object.entries(json)) {
    if (!isNetworkName(name))
      throw new TypeError(`Deployments: ${name} is none of ${networkNames.join(', ')}`)
    const deployment = parseDeployment(name, entry)
    if (deployment) deployments[name] = deployment
  }
  return deployments
}

/** The deployments that are committed with this version. */
export const committedDeployments: Deployments = /* @__PURE__ */ parseDeployments(committed)

/**
 * The addresses of this version on every network, also where no deployment was recorded with it: for programs that don't read the chain
 * from the start block on.
 */
export const commonDeployments: Deployments = /* @__PURE__ */ parseDeployments(
  Object.fromEntries(
    Object.entries(committed).map(([name, entry]) => [name, { ...entry, startBlock: entry.startBlock ?? 0 }]),
  ),
)

/** The `SplitterFactory` of this version: CREATE2 gives it one address on every network. */
export const splitterFactory = committed.base.splitterFactory as Address

/** The `TabSettlement` of this version: CREATE2 gives it one address on every network. */
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
