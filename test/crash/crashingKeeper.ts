import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { openServedNetworks } from '#keeper/chain/servedNetworks'
import { createKeeper } from '#keeper/keeper'
import { createLogger } from '#keeper/logger'
import type { KeeperSettings } from '#keeper/loops/context'
import { openDatabase } from '#keeper/store/database'
import { parseDeployments } from '#protocol/deployments'
import { networks } from '#protocol/networks'
import { platformWallet } from '../support/keeperStack.ts'

// A keeper as a process of its own that ends itself, as `kill -9` would, when it comes to a named checkpoint.

export type CrashingKeeperOptions = {
  databaseUrl: string
  rpcUrl: string
  deploymentsFile: string
  privateKey: Hex
  /** bigints as decimal strings */
  settings: string
  /** null: it doesn't crash. */
  crashAt: string | null
}

const options: CrashingKeeperOptions = JSON.parse(process.argv[2] ?? '{}')
const settings: KeeperSettings = JSON.parse(options.settings, (_key, value: unknown) =>
  typeof value === 'string' && /^\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
)
const deployment = parseDeployments(JSON.parse(readFileSync(options.deploymentsFile, 'utf8'))).localhost
if (!deployment) throw new Error('no deployment')

const keeper = createKeeper({
  database: openDatabase({ url: options.databaseUrl, applicationName: 'crashing keeper' }),
  indexerSchema: 'indexer',
  networks: await openServedNetworks([
    { network: networks.localhost, deployment, rpcUrls: [options.rpcUrl] },
  ]),
  accounts: [privateKeyToAccount(options.privateKey)],
  platformWallets: [platformWallet],
  settings,
  submitTimeoutMs: 10_000,
  log: createLogger(process.env.LOG_LEVEL ?? 'silent'),
  now: () => new Date(),
  randomBytes32: () => `0x${randomBytes(32).toString('hex')}`,
  holder: randomBytes(4).toString('hex'),
  checkpoint: (name) => {
    if (name === options.crashAt) process.kill(process.pid, 'SIGKILL')
  },
})
keeper.start()
