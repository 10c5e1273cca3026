import { logIgnoredParameters } from '@tollkeeper/ledger/store/databaseServer'
import { findUnread, readVariable } from '@tollkeeper/runtime/env'
import { createLogger } from '@tollkeeper/runtime/log'
import { readIndexerOptions } from './config.ts'
import { type Indexer, startIndexer } from './launch.ts'

// `npm run indexer`: runs Ponder alone, with the services from the environment.
// With `--serve` it only answers GraphQL from another indexer's tables.

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

/** Runs an indexer until it ends. Resolves with its exit code, or with `true` if it should be started again. */
async function run(): Promise<true | number | null> {
  indexer = await startIndexer({
    ...readIndexerOptions(process.env),
    isReader,
    onLog: (line) => process.stdout.write(`${line}\n`),
  })
  const views = isReader ? 'which another indexer writes' : 'views in the schema indexer'
  console.log(`indexer: ${indexer.url}/graphql, tables in the schema ${indexer.schema}, ${views}`)
  await indexer.ready
  console.log(isReader ? 'indexer: ready' : `indexer: ready, the views show ${indexer.schema}`)
  return Promise.race([indexer.exited, indexer.answersAgain.then(() => true as const)])
}

for (const { name, hint } of findUnread(process.env))
  console.warn(`indexer: no process reads ${name} (${hint})`)
try {
  logIgnoredParameters(process.env, createLogger('indexer', readVariable(process.env, 'LOG_LEVEL')))
  while (!isStopping) {
    const outcome = await run()
    if (outcome !== true) {
      if (!isStopping) process.exit(outcome || 1)
      break
    }
    console.log(
      `indexer: restarting, because one of these networks answers again: ${indexer?.leftOut.join(', ')}`,
    )
    await indexer?.close()
  }
} catch (error) {
  if (!isStopping) {
    console.error(error instanceof Error ? error.message : error)
    await indexer?.close()
    process.exit(1)
  }
}
