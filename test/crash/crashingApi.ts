import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { createApp } from '@tollkeeper/api/app'
import type { GatewaySettings } from '@tollkeeper/api/http/settings'
import { loadReceiptKeys } from '@tollkeeper/api/payments/receipts/keys'
import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { createLogger } from '@tollkeeper/runtime/log'
import { parseDeployments } from '@tollkeeper/sdk/protocol/deployments'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import { readOptions } from './children.ts'

// A gateway in a separate process that kills itself, as `kill -9` would, at a step of a payment or of a tab.

/** Where the gateway dies: before a statement is sent, or after a request has committed and before its answer is sent. */
const steps = {
  'before-commit': { statement: 'accept_payments' },
  'after-commit': { path: /^\/verify$/ },
  'before-reservation': { statement: 'reserve_for_tab' },
  'before-tab-commit': { statement: 'tabs.accept' },
  'before-charge': { statement: 'tabs.charge' },
  'after-charge': { path: /\/charge$/ },
  'before-close': { statement: 'update tabs.tab' },
  'after-close': { path: /\/close$/ },
} as const satisfies Record<string, { statement: string } | { path: RegExp }>
export type ApiStep = keyof typeof steps

export type CrashingApiOptions = {
  databaseUrl: string
  rpcUrl: string
  deploymentsFile: string
  receiptKeyFile: string
  settings: Omit<GatewaySettings, 'macaroonSecrets'>
  macaroonKey: string
  crashAt: ApiStep | null
}

const options = readOptions<CrashingApiOptions>()
const deployment = parseDeployments(JSON.parse(readFileSync(options.deploymentsFile, 'utf8'))).localhost
if (!deployment) throw new Error('no deployment')

function die(): void {
  process.kill(process.pid, 'SIGKILL')
}

/** Kills the process before it sends the statement that makes and commits the step's change. */
function dieBefore(database: Database, statement: string): Database {
  return new Proxy(database, {
    apply(target, self, parts) {
      const [text] = parts
      if (Array.isArray(text) && text.join('').includes(statement)) die()
      return Reflect.apply(target, self, parts)
    },
  })
}

const step = options.crashAt === null ? null : steps[options.crashAt]
const database = openDatabase({ url: options.databaseUrl, applicationName: 'crashing api' })
const app = createApp({
  sql: step !== null && 'statement' in step ? dieBefore(database, step.statement) : database,
  networks: await openServedNetworks([
    { network: networks.localhost, deployment, rpcUrls: [options.rpcUrl] },
  ]),
  settings: {
    ...options.settings,
    macaroonSecrets: [{ kid: 'test', key: Buffer.from(options.macaroonKey, 'hex') }],
  },
  receiptKeys: await loadReceiptKeys(options.receiptKeyFile, true),
  log: createLogger('api', 'error'),
})

async function answer(request: Request): Promise<Response> {
  const response = await app.fetch(request)
  // The change is committed, but the answer isn't sent.
  if (step !== null && 'path' in step && step.path.test(new URL(request.url).pathname)) die()
  return response
}

const server = serve({ fetch: answer, port: 0, hostname: '127.0.0.1' }, (address: AddressInfo) => {
  process.send?.({ port: address.port })
})
process.once('disconnect', () => {
  server.close()
  process.exit(0)
})
