import { type Environment, findMisspelled } from '#process/env'
import { type Check, skipped, warn } from './check.ts'
import { examineChain } from './examineChain.ts'
import { examineDatabase } from './examineDatabase.ts'
import { examineGas } from './examineGas.ts'
import { readNetworks } from './networks.ts'

/**
 * Checks everything that the environment names, each thing after what it needs. One check that fails stops no other but those
 * that need it, and these say so.
 */
export async function* examine(env: Environment): AsyncGenerator<Check> {
  const networks = yield* readNetworks(env)
  for (const [name, meant] of findMisspelled(env)) {
    yield warn('configuration', `nobody reads ${name}`, `is it ${meant}?`)
  }
  if (networks.length === 0) yield skipped('nodes, contracts, index', 'a network: NETWORKS')
  for (const network of networks) yield* examineChain(network, env)
  yield* examineDatabase(env, networks)
  yield* examineGas(env, networks)
}
