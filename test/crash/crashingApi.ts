import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { createApp } from '#api/app'
import type { GatewaySettings } from '#api/http/settings'
import { loadReceiptKeys } from '#api/payments/receipts/keys'
import { openServedNetworks } from '#chain/servedNetworks'
import { type Database, openDatabase } from '#ledger/store/database'
import { createLogger } from '#process/log'
import { parseDeployments } from '#protocol/deployments'
import { networks } from '#protocol/networks'
import { readOptions } from './children.ts'

// A gateway as a process of its own that ends itself, as `kill -9` would, while it accepts a payment.

export type CrashingApiOptions = {
  databaseUrl: string
  rpcUrl: string
  deploymentsFile: string
  receiptKeyFile: string
  settings: Omit<GatewaySettings, 'macaroonSecrets'>
  macaroonKey: string
  crashAt: 'before-commit' | 'after-commit' | null
}

const options = readOptions<CrashingApiOptions>()
const deployment = parseDeployments(JSON.parse(readFileSync(options.deploymentsFile, 'utf8'))).localhost
if (!deployment) throw new Error('no deployment')

function die(): void {
  process.kill(process.pid, 'SIGKILL')
}

/** Ends the process where the one statement that accepts payments, and commits them, would go out. */
function dieBeforeCommit(database: Database): Database {
  return new Proxy(database, {
    apply(target, self, parts) {
      const [text] = parts
      if (Array.isArray(text) && text.join('').includes('accept_payments')) die()
      return Reflect.apply(target, self, parts)
    },
  })
}

const database = openDatabase({ url: options.databaseUrl, applicationName: 'crashing api' })
const app = createApp({
  sql: options.crashAt === 'before-commit' ? dieBeforeCommit(database) : database,
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
  // The payment is committed, and nobody hears of it.
  if (options.crashAt === 'after-commit' && new URL(request.url).pathname === '/verify') die()
  return response
}

const server = serve({ fetch: answer, port: 0, hostname: '127.0.0.1' }, (address: AddressInfo) => {
  process.send?.({ port: address.port })
})
process.once('disconnect', () => {
  server.close()
  process.exit(0)
})
