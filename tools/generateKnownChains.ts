/**
 * Writes packages/chain/generated/knownChains.json: the ids of the production chains and of the test chains in viem's list. A process that reads this
 * file notices if a network file confuses real and test money, without loading viem's seven hundred chains.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as definitions from 'viem/chains'

type Listed = { id: number; name: string; testnet?: boolean }

/**
 * Matches names of local chains, and of test chains that viem doesn't mark as such. These chains count neither as test chains nor as production
 * chains.
 */
const unclear = /test|dev|local|sepolia|goerli|hardhat|foundry|anvil|nightly/i

/** Returns the ids of the chains whose kind is certain from viem's list, in ascending order. */
export function readKnownChains(): { production: number[]; test: number[] } {
  const listed = Object.values(definitions).filter(
    (one): one is Extract<typeof one, Listed> => typeof one === 'object' && 'id' in one,
  ) as Listed[]
  const kindsOf = Map.groupBy(listed, ({ id }) => id)
  const production: number[] = []
  const test: number[] = []
  for (const [id, chains] of kindsOf) {
    if (chains.every(({ testnet }) => testnet === true)) test.push(id)
    else if (chains.every(({ testnet, name }) => !testnet && !unclear.test(name))) production.push(id)
  }
  const ascending = (ids: number[]) => ids.toSorted((one, other) => one - other)
  return { production: ascending(production), test: ascending(test) }
}

if (import.meta.main) {
  const file = join(import.meta.dirname, '..', 'packages/chain/generated/knownChains.json')
  writeFileSync(file, `${JSON.stringify(readKnownChains())}\n`)
}
