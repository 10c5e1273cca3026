import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import type { Address, Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { openServedNetworks } from '#chain/servedNetworks'
import { createKeeper } from '#keeper/keeper'
import type { CheckpointName } from '#keeper/settings/checkpoints'
import type { KeeperSettings } from '#keeper/settings/settings'
import { openDatabase } from '#ledger/store/database'
import { createLogger } from '#process/log'
import { parseDeployments } from '#protocol/deployments'
import { networks } from '#protocol/networks'
import { readOptions } from './children.ts'

// A keeper as a process of its own that ends itself, as `kill -9` would, when it comes to a named checkpoint.

export type CrashingKeeperOptions = {
  databaseUrl: string
  rpcUrl: string
  deploymentsFile: string
  privateKeys: readonly Hex[]
  platformWallet: Address
  settings: KeeperSettings
}

/** What it is told when its turn comes: until then it stands by. */
export type Turn = {
  /** null: it doesn't crash. */
  crashAt: CheckpointName | null
}

const options = readOptions<CrashingKeeperOptions>()
const deployment = parseDeployments(JSON.parse(readFileSync(options.deploymentsFile, 'utf8'))).localhost
if (!deployment) throw new Error('no deployment')

// Whoever started it is gone.
process.once('disconnect', () => process.exit(0))
let crashAt: CheckpointName | null = null

const keeper = createKeeper({
  database: openDatabase({ url: options.databaseUrl, applicationName: 'crashing keeper' }),
  networks: await openServedNetworks([
    { network: networks.localhost, deployment, rpcUrls: [options.rpcUrl] },
  ]),
  accounts: options.privateKeys.map((key) => privateKeyToAccount(key)),
  platformWallets: [options.platformWallet],
  settings: options.settings,
  submitTimeoutMs: 120_000,
  upkeepMs: 500,
  log: createLogger('keeper', (process.env.LOG_LEVEL ?? 'silent') as 'silent'),
  now: () => new Date(),
  randomBytes32: () => `0x${randomBytes(32).toString('hex')}`,
  holder: randomBytes(4).toString('hex'),
  checkpoint: (name) => {
    if (name === crashAt) process.kill(process.pid, 'SIGKILL')
  },
})
;[{ crashAt }] = (await once(process, 'message')) as [Turn]
keeper.start()
serve({ fetch: keeper.app.fetch, port: 0, hostname: '127.0.0.1' }, (address: AddressInfo) => {
  process.send?.({ port: address.port })
})
