import { readChosenNetworks, readDeployments } from '@tollkeeper/chain/networkSettings'
import { ConfigError, type Environment, requireVariable } from '@tollkeeper/runtime/env'
import { networkVariable } from '@tollkeeper/runtime/variables'
import type { Deployment, Deployments } from '@tollkeeper/sdk/protocol/deployments'
import { type Network, networks } from '@tollkeeper/sdk/protocol/networks'
import type { PublicClient } from 'viem'
import { type Check, fail, ok } from './check.ts'

/** A network to serve: the environment's settings, and what the checks find out for each other. */
export type ExaminedNetwork = {
  network: Network
  /** Empty if the variable is missing or wrong. */
  rpcUrls: readonly string[]
  /** Undefined if none is recorded. */
  deployment: Deployment | undefined
  /** Of the first RPC that answers for this chain. */
  client?: PublicClient
  head?: bigint
  /** False: there is nothing to index. Undefined: nobody could look. */
  hasContracts?: boolean
}

/** Reads as much of the environment as it can: a network without contracts still has nodes to check. */
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
    network: networks[name],
    rpcUrls: attempt(() => requireVariable(env, networkVariable('RPC_URL', name))) ?? [],
    deployment: deployments[name],
  }))
  for (const found of problems) yield fail(name, found, '.env.example says what is expected')
  if (problems.length === 0) yield ok(name, chosen.join(', '))
  return read
}
