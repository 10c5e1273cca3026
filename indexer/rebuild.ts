import { parseArgs } from 'node:util'
import { ConfigError } from '@tollkeeper/runtime/env'
import { dropIndex } from './chainData.ts'
import { readIndexerConfig, readIndexerOptions } from './config.ts'
import { deriveSchema } from './launch.ts'
import { readStartHashes } from './startBlocks.ts'

// For a reorg that was deeper than Ponder's finality, or another chain under a known chain id: removes the index and
// Ponder's cache of these chains, so that the next start reads them anew.
//   node indexer/rebuild.ts [--network base]

const { values } = parseArgs({ options: { network: { type: 'string', multiple: true } } })

try {
  const config = readIndexerConfig(process.env)
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
    `dropped ${schema} and what was kept of ${named.join(', ')}; start the indexer to read them anew`,
  )
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 1
}
