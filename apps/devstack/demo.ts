/** `npm run demo`: buyers pay APIs on a complete stack. Then their receipts are audited, and all USDC is accounted for. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { parseText } from '@tollkeeper/runtime/env'
import { integer } from '@tollkeeper/runtime/parsers'
import { createProgress } from './demo/progress.ts'
import { isSound, toJson, toText } from './demo/report.ts'
import { runDemo } from './demo/runDemo.ts'
import { type Stack, startStack } from './stack/stack.ts'
import { interruptedStatus, onStopSignal } from './stack/stopSignals.ts'

const usage = `Usage: npm run demo -- [--payments N] [--json]

Starts the whole stack on free ports. Buyers pay three providers, and one provider in mock mode. Another buyer buys 2,000
requests on a tab from five other providers. When everything is settled, the demo audits all receipts as \`tollkeeper audit\`
does, and compares what left the buyers with what arrived. Exits with 0 only if every receipt reconciles and no USDC is missing.

  --payments N  micropayments, 0 to 10,000 (default 120), in addition to one high-value payment
  --json        print one JSON object; progress goes to stderr
  --help        this text`

const started = performance.now()
const options = readOptions()
const progress = createProgress(options.json ? process.stderr : process.stdout)
const logFolder = await mkdtemp(join(tmpdir(), 'tollkeeper-demo-logs-'))

let stack: Stack | undefined
let interrupted = false
const startup = new AbortController()
const death = Promise.withResolvers<never>()
death.promise.catch(() => {})
onStopSignal((urgent) => {
  interrupted = true
  startup.abort()
  death.reject(new Error('interrupted'))
  void stack?.close({ force: urgent })
})

try {
  progress.say('Starting Postgres, the chain, indexer, keeper and api')
  // Raise the time trigger with the number of payments. Otherwise it would fire before the payments reach the count trigger.
  const timeTriggerSeconds = 10 + Math.ceil(options.payments / 5)
  stack = await startStack({
    logFolder,
    signal: startup.signal,
    // Use a low gas price, at which 150 payments settle for a quarter of a cent. At a higher gas price, the keeper would raise its amount
    // and count triggers.
    chain: { blockTimeMs: 500, baseFeePerGas: 50_000n },
    // All buyers and providers share one IP address here.
    env: { api: { RATE_LIMITS: 'off' }, keeper: { TRIGGER_TIME_SECONDS: String(timeTriggerSeconds) } },
    onReady: (name, url) => progress.say(`  ${name.padEnd(8)} ${url}`),
    onDeath: (_, reason) => death.reject(new Error(reason)),
  })
  const result = await Promise.race([runDemo(stack, options.payments, progress), death.promise])
  // All requests are done, so the processes needn't wait for their connections.
  await stack.close({ force: true })
  const elapsedMs = Math.round(performance.now() - started)
  progress.say(toText(result, elapsedMs))
  if (options.json) process.stdout.write(`${toJson(result, elapsedMs)}\n`)
  process.exitCode = isSound(result) ? 0 : 1
} catch (error) {
  await stack?.close({ force: true })
  if (!interrupted) console.error(`The demo failed: ${error instanceof Error ? error.message : error}`)
  process.exitCode = interrupted ? interruptedStatus : 1
}
if (process.exitCode === 0 || interrupted) await rm(logFolder, { recursive: true, force: true })
else console.error(`Logs of all processes: ${logFolder}`)
// An interrupted step may still have requests in progress.
process.exit()

function readOptions(): { payments: number; json: boolean } {
  try {
    const { values } = parseArgs({
      options: {
        payments: { type: 'string', default: '120' },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
    if (values.help) {
      console.log(usage)
      process.exit(0)
    }
    const payments = parseText('--payments', values.payments, integer(0, 10_000))
    return { payments, json: values.json }
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
    process.exit(2)
  }
}
