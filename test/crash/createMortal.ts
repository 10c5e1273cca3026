import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { createKeeper, type Keeper } from '@tollkeeper/keeper/keeper'
import type { Checkpoint, CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import type { KeeperSettings } from '@tollkeeper/keeper/settings/config'
import { type Database, openDatabase } from '@tollkeeper/ledger/store/database'
import { onOnePostgres } from '@tollkeeper/ledger/tabs/tabDatabase'
import { createLogger } from '@tollkeeper/runtime/log'
import type { Deployment } from '@tollkeeper/sdk/protocol/deployments'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { Address, Hex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { keeperDefaults } from '../support/keeperDefaults.ts'
import { randomHex } from '../support/usdc.ts'

/** Options of a keeper that dies at the checkpoint `crashAt`, or never if that is null. */
export type MortalOptions = {
  databaseUrl: string
  rpcUrl: string
  deployment: Deployment
  privateKey: Hex
  platformWallet: Address
  settings: KeeperSettings
  crashAt: CheckpointName | null
}

export async function createMortal(
  options: MortalOptions,
  checkpoint: Checkpoint,
): Promise<{ keeper: Keeper; database: Database }> {
  const { databaseUrl, rpcUrl, deployment } = options
  const database = openDatabase({ url: databaseUrl, applicationName: 'crashing keeper' })
  const keeper = createKeeper({
    ...keeperDefaults,
    tabs: { ...keeperDefaults.tabs, database: onOnePostgres(database) },
    database,
    networks: await openServedNetworks([{ network: networks.localhost, deployment, rpcUrls: [rpcUrl] }]),
    accounts: [privateKeyToAccount(options.privateKey)],
    platformWallets: [options.platformWallet],
    settings: options.settings,
    submitTimeoutMs: 120_000,
    upkeepMs: 500,
    log: createLogger('keeper', (process.env.LOG_LEVEL ?? 'silent') as 'silent'),
    now: () => new Date(),
    randomBytes32: () => randomHex(32),
    holder: randomHex(4),
    checkpoint,
  })
  return { keeper, database }
}
