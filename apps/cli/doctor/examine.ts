import { type Environment, findUnread } from '@tollkeeper/runtime/env'
import { type Check, skipped, warn } from './check.ts'
import { examineChain } from './examineChain.ts'
import { type ClockReading, examineClock } from './examineClock.ts'
import { examineDatabase } from './examineDatabase.ts'
import { examineGas } from './examineGas.ts'
import { examinePublicUrl } from './examinePublicUrl.ts'
import { examineReceiptKeys, readLocalKeys } from './examineReceiptKeys.ts'
import { readNetworks } from './networks.ts'

/**
 * Checks everything that the environment configures, in the order of dependencies. If a check fails, only the checks that depend
 * on it are skipped. A skipped check reports what it needs.
 */
export async function* examine(env: Environment): AsyncGenerator<Check> {
  const networks = yield* readNetworks(env)
  for (const { name, hint } of findUnread(env)) {
    yield warn('configuration', `no process reads ${name}`, hint)
  }
  if (networks.length === 0) yield skipped('nodes, contracts, index', 'a network: set NETWORKS')
  const clocks: ClockReading[] = []
  for (const network of networks) yield* examineChain(network, env, clocks)
  yield* examineDatabase(env, networks, clocks)
  yield examineClock(clocks)
  const local = await readLocalKeys(env)
  const ownKids = 'file' in local ? local.file.keys.map(({ kid }) => kid) : null
  const { check, published } = await examinePublicUrl(env, ownKids)
  yield check
  yield examineReceiptKeys(local, published)
  yield* examineGas(env, networks)
}
