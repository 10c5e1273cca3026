import { type Environment, findUnread } from '@tollkeeper/runtime/env'
import { type Check, skipped, warn } from './check.ts'
import { examineChain } from './examineChain.ts'
import { examineDatabase } from './examineDatabase.ts'
import { examineGas } from './examineGas.ts'
import { readNetworks } from './networks.ts'

/**
 * Checks everything that the environment names, each after what it depends on. If a check fails, only those that depend on it
 * are skipped, and they say so.
 */
export async function* examine(env: Environment): AsyncGenerator<Check> {
  const networks = yield* readNetworks(env)
  for (const { name, hint } of findUnread(env)) {
    yield warn('configuration', `no process reads ${name}`, hint)
  }
  if (networks.length === 0) yield skipped('nodes, contracts, index', 'a network: NETWORKS')
  for (const network of networks) yield* examineChain(network, env)
  yield* examineDatabase(env, networks)
  yield* examineGas(env, networks)
}
