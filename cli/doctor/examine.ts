import { type NetworkSettings, readNetworkSettings } from '#chain/networkSettings'
import { ConfigError, type Environment, findMisspelled } from '#process/env'
import type { Check } from './check.ts'
import { examineChain } from './examineChain.ts'
import { examineDatabase } from './examineDatabase.ts'
import { examineGas } from './examineGas.ts'

/** Checks everything that the environment names; one check that fails does not stop the others. */
export async function* examine(env: Environment): AsyncGenerator<Check> {
  let networks: NetworkSettings[] = []
  try {
    networks = readNetworkSettings(env)
    yield {
      name: 'configuration',
      status: 'ok',
      found: networks.map(({ network }) => network.name).join(', '),
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    yield {
      name: 'configuration',
      status: 'fail',
      found: error.message,
      advice: '.env.example says what is expected',
    }
  }
  for (const [name, meant] of findMisspelled(env)) {
    yield { name: 'configuration', status: 'warn', found: `nobody reads ${name}`, advice: `is it ${meant}?` }
  }
  const heads = new Map<number, bigint>()
  for (const settings of networks) yield* examineChain(settings, heads)
  yield* examineDatabase(env, networks, heads)
  yield* examineGas(env, networks)
}
