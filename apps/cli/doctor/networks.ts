import { readChosenNetworks, readDeployments } from '@tollkeeper/chain/networkSettings'
import { ConfigError, type Environment, requireRpcUrls } from '@tollkeeper/runtime/env'
import type { Deployment, Deployments } from '@tollkeeper/sdk/protocol/deployments'
import { type Network, networkByName } from '@tollkeeper/sdk/protocol/networks'
import type { PublicClient } from 'viem'
import { type Check, fail, ok } from './check.ts'

/** A network to serve: its settings from the environment, and results that later checks need. */
export type ExaminedNetwork = {
  network: Network
  /** URLs of the nodes. Empty if the variable is missing or wrong. */
  rpcUrls: readonly string[]
  /** Undefined if no deployment is recorded. */
  deployment: Deployment | undefined
  /** Client of the first RPC that responds for this chain. */
  client?: PublicClient
  head?: bigint
  /** Whether the contract has code. False: there is nothing to index. Undefined: the code could not be read. */
  hasContracts?: boolean
}

/** Reads as much of the environment as possible: nodes can be checked even on a network without contracts. */
export function* readNetworks(env: Environment): Generator<Check, ExaminedNetwork[]> {
  const name = 'configuration'
  const problems: string[] = []
  const attempt = <Value>(read: () => Value): Value | undefined => {
    try {
      return read()
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      problems.push(error.message)
      return undefined
    }
  }
  const chosen = attempt(() => readChosenNetworks(env)) ?? []
  const deployments: Deployments = attempt(() => readDeployments(env)) ?? {}
  const read = chosen.map((name) => ({
    network: networkByName(name),
    rpcUrls: attempt(() => requireRpcUrls(env, name)) ?? [],
    deployment: deployments[name],
  }))
  for (const found of problems) yield fail(name, found, 'see .env.example for the expected value')
  if (problems.length === 0) yield ok(name, chosen.join(', '))
  return read
}
