import { parseArgs } from 'node:util'
import { ConfigError } from '@tollkeeper/runtime/env'
import { dropIndex } from './chainData.ts'
import { readIndexerOptions, readIndexerSettings } from './config.ts'
import { deriveSchema } from './launch.ts'
import { readStartHashes } from './startBlocks.ts'

// Removes the index and Ponder's cache of the named chains, so that the next start reads these chains again. Needed after a reorg that was deeper
// than Ponder's finality, or if another chain has a known chain id.
//   node indexer/rebuild.ts [--network base]

const { values } = parseArgs({ options: { network: { type: 'string', multiple: true } } })

try {
  const config = readIndexerSettings(process.env)
  const served = config.networks.map(({ network }) => network)
  const named = values.network ?? served.map(({ name }) => name)
  const unknown = named.find((name) => !served.some((network) => network.name === name))
  if (unknown !== undefined) {
    throw new ConfigError('--network', `one of ${served.map(({ name }) => name).join(', ')}`, unknown)
  }
  const schema =
    readIndexerOptions(process.env).schema ??
    (await deriveSchema(config, await readStartHashes(config.databaseUrl, config.networks, true)))
  const chains = served.filter(({ name }) => named.some((each) => each === name))
  await dropIndex(
    config.databaseUrl,
    schema,
    chains.map(({ chainId }) => chainId),
  )
  console.log(
    `dropped ${schema} and the cached data of ${named.join(', ')}: start the indexer to read them again`,
  )
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
}
