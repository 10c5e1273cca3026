/** `npm start`: the whole system on a local chain, with a sample API to pay for, until Ctrl-C. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { isSet, readVariable, type VariableName } from '@tollkeeper/runtime/env'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { isPortFree } from '@tollkeeper/runtime/port'
import { devAccount, devPrivateKey } from './chain/accounts.ts'
import { describeLine, watchDatabase } from './stack/feed.ts'
import { playedNetworks, type ServiceName, type Stack, type StackPorts, startStack } from './stack/stack.ts'
import { interruptedStatus, onStopSignal } from './stack/stopSignals.ts'

const ports = [
  { name: 'chain', variable: 'CHAIN_PORT', title: 'local chain' },
  { name: 'indexer', variable: 'INDEXER_PORT', title: 'indexer (GraphQL)' },
  { name: 'keeper', variable: 'KEEPER_PORT', title: 'keeper' },
  { name: 'api', variable: 'API_PORT', title: 'gateway' },
  { name: 'provider', variable: 'PROVIDER_PORT', title: 'sample API' },
] as const satisfies { name: ServiceName; variable: VariableName; title: string }[]

const defaultOf = (variable: VariableName) => String(readVariable({}, variable))

/** In the package, this file is built as JavaScript, and there are no npm scripts of a checkout. */
const [typed, buy] = import.meta.filename.endsWith('.js')
  ? [`${ownCommand} start`, `${ownCommand} buy`]
  : ['npm start', 'npm run buy --']

const usage = `Usage: ${typed}${typed.startsWith('npm') ? ' --' : ''} [--network ${playedNetworks.join('|')}]

Starts a local chain that simulates ${playedNetworks[0]} (or another network) with the real USDC, Postgres (or uses DATABASE_URL), the indexer, the keeper, the gateway and a sample
API that charges for its forecast. Ctrl-C stops everything and deletes the chain's data.

Ports, 0 for a free one:
${ports.map((port) => `  ${port.variable.padEnd(14)} ${port.title} (default ${defaultOf(port.variable)})`).join('\n')}`

/** Time trigger in seconds. It is shorter than the hour of conformance 8.1-4, so that anyone who watches sees a settlement. */
const settleAfterSeconds = isSet(process.env, 'TRIGGER_TIME_SECONDS')
  ? readVariable(process.env, 'TRIGGER_TIME_SECONDS')
  : 60
const buyerAccount = 10
const buyerFunds = 1_000_000_000n

let stack: Stack | undefined
let logFolder: string | undefined
let isStopping = false
let stopWatching: (() => Promise<void>) | undefined
const startup = new AbortController()
const stopped = Promise.withResolvers<number>()

try {
  const { values } = parseArgs({
    options: {
      network: { type: 'string', default: playedNetworks[0] },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  if (values.help) {
    console.log(usage)
    process.exit(0)
  }
  const network = playedNetworks.find((name) => name === values.network)
  if (network === undefined)
    throw new Error(`--network: expected ${playedNetworks.join(' or ')}, got "${values.network}"`)
  const chosen = await choosePorts()
  // Use a folder outside the checkout, because a second `npm start` may run in the same checkout.
  logFolder = await mkdtemp(join(tmpdir(), 'tollkeeper-logs-'))

  onStopSignal((urgent) => {
    if (!isStopping) console.log('\nStopping. Press Ctrl-C again to stop immediately')
    isStopping = true
    stopped.resolve(interruptedStatus)
    startup.abort()
    if (urgent) void stack?.close({ force: true })
  })

  const begun = performance.now()
  stack = await startStack({
    ports: chosen,
    chain: { network },
    databaseUrl:
      readVariable(process.env, 'DATABASE_DIRECT_URL') ??
      readVariable(process.env, 'DATABASE_URL') ??
      undefined,
    provider: true,
    env: {
      keeper: { TRIGGER_TIME_SECONDS: String(settleAfterSeconds) },
      // The api needs the keeper's thresholds for its estimates and the dashboard's countdowns.
      api: { TRIGGER_TIME_SECONDS: String(settleAfterSeconds) },
    },
    signal: startup.signal,
    logFolder,
    onReady: (name, url) => {
      const title = ports.find((port) => port.name === name)?.title ?? 'Postgres'
      console.log(`  ${title.padEnd(18)} ${url}`)
    },
    onLine: (name, line) => {
      const news = describeLine(name, line)
      if (news !== undefined) tell(news)
    },
    onDeath: (_, reason) => {
      if (isStopping) return
      console.error(`\n${reason}`)
      stopped.resolve(1)
    },
  })
  if (!isStopping) await invite(stack, (performance.now() - begun) / 1000)
  stopWatching = watchDatabase(stack.databaseUrl, tell)
  process.exitCode = await stopped.promise
} catch (error) {
  if (!isStopping) console.error(error instanceof Error ? error.message : error)
  process.exitCode = isStopping ? interruptedStatus : 1
}
isStopping = true
await stopWatching?.()
await stack?.close()
if (logFolder && process.exitCode === interruptedStatus) await rm(logFolder, { recursive: true, force: true })
else if (logFolder) console.error(`Logs of all processes: ${logFolder}`)
process.exit()

function tell(news: string): void {
  if (!isStopping) console.log(`${new Date().toLocaleTimeString('en-GB')}  ${news}`)
}

async function choosePorts(): Promise<StackPorts> {
  const chosen: StackPorts = {}
  const taken: string[] = []
  for (const { name, variable, title } of ports) {
    const port = readVariable(process.env, variable)
    chosen[name] = port
    if (port !== 0 && !(await isPortFree(port))) {
      taken.push(
        `Port ${port} of the ${title} is taken: set ${variable} to another port, for example ${variable}=${port + 100} ${typed}`,
      )
    }
  }
  if (taken.length > 0) throw new Error(taken.join('\n'))
  return chosen
}

async function invite(
  { chain, logFolder, provider, providerApiKey, api }: Stack,
  seconds: number,
): Promise<void> {
  const buyer = devAccount(buyerAccount)
  await chain.mintUsdc([buyer.address], buyerFunds)
  const token =
    chain.network === 'localhost'
      ? `NETWORK=localhost USDC_ADDRESS=${chain.deployments.localhost?.usdc} `
      : ''
  console.log(`
Ready after ${seconds.toFixed(1)} s. A buyer with 1,000 USDC can pay for the sample API now, in another terminal:

  GATEWAY_URL=${api.url} WALLET_PRIVATE_KEY=${devPrivateKey(buyerAccount)} ${token}${buy} ${provider?.url}/forecast

The provider’s dashboard: ${api.url}/dashboard/ (sign in with the API key ${providerApiKey})

Payments settle within ${settleAfterSeconds} s here (TRIGGER_TIME_SECONDS). Logs: ${logFolder}. Press Ctrl-C to stop everything.
`)
}
