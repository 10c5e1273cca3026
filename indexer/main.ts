import { logIgnoredParameters } from '@tollkeeper/ledger/store/databaseServer'
import { findUnread, readVariable } from '@tollkeeper/runtime/env'
import { createLogger } from '@tollkeeper/runtime/log'
import { readIndexerOptions } from './config.ts'
import { type Indexer, startIndexer } from './launch.ts'

// `npm run indexer`: Ponder alone, against the services that the environment names.
// With `--serve` it only answers GraphQL, from another indexer's tables.

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

/** Resolves once it has ended; `true`: it is to be started anew. */
async function run(): Promise<true | number | null> {
  indexer = await startIndexer({
    ...readIndexerOptions(process.env),
    isReader,
    onLog: (line) => process.stdout.write(`${line}\n`),
  })
  const whose = isReader ? 'another writes them' : 'views in indexer'
  console.log(`indexer: ${indexer.url}/graphql, tables in ${indexer.schema}, ${whose}`)
  await indexer.ready
  console.log(isReader ? 'indexer: answers' : `indexer: the views show ${indexer.schema}`)
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
    console.log(`indexer: starts anew, since one of ${indexer?.leftOut.join(', ')} answers again`)
    await indexer?.close()
  }
} catch (error) {
  if (!isStopping) {
    console.error(error instanceof Error ? error.message : error)
    await indexer?.close()
    process.exit(1)
  }
}
