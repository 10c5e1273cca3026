import { readIndexerOptions } from './config.ts'
import { type Indexer, startIndexer } from './launch.ts'

// `npm run indexer`: Ponder by itself, against the services that the environment names.
// With `--serve` it only answers GraphQL, from what another one writes.

const isReader = process.argv.includes('--serve')

let indexer: Indexer | undefined
let isStopping = false

function stop(): void {
  if (isStopping) return
  isStopping = true
  if (indexer === undefined) process.exit(0)
  void indexer.close().then(() => process.exit(0))
}
process.on('SIGTERM', stop)
process.on('SIGINT', stop)

try {
  indexer = await startIndexer({
    ...readIndexerOptions(process.env),
    isReader,
    onLog: (line) => process.stdout.write(`${line}\n`),
  })
  const whose = isReader ? 'another writes them' : 'views in indexer'
  console.log(`indexer: ${indexer.url}/graphql, tables in ${indexer.schema}, ${whose}`)
  await indexer.ready
  console.log(isReader ? 'indexer: answers' : `indexer: the views show ${indexer.schema}`)
  const code = await indexer.exited
  if (!isStopping) process.exit(code || 1)
} catch (error) {
  if (!isStopping) {
    console.error(error instanceof Error ? error.message : error)
    await indexer?.close()
    process.exit(1)
  }
}
