import { finalityOf } from '@tollkeeper/chain/finality'
import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter } from '@tollkeeper/chain/gasShares'
import { createPayerCode } from '@tollkeeper/chain/payerCode'
import { type Context, createMemory } from '@tollkeeper/keeper/loops/context'
import { createMetrics } from '@tollkeeper/keeper/settings/metrics'
import { createFeeCoveredPolicy } from '@tollkeeper/keeper/settler/gasPolicy'
import { createDueBatches } from '@tollkeeper/ledger/queue/dueBatches'
import { createLogger } from '@tollkeeper/runtime/log'
import type { KeeperStack } from './keeperStack.ts'
import { randomHex } from './usdc.ts'

/** Creates the context of a keeper's loops, for tests that call their steps one by one. */
export function createKeeperContext(
  { database, served, settings: set }: Pick<KeeperStack, 'database' | 'served' | 'settings'>,
  checkpoint: Context['checkpoint'] = () => {},
  now = () => new Date(),
): Context {
  const settings = { ...set, ...gasLimitsOf(served.network, set) }
  return {
    sql: database,
    served,
    settings,
    finalityBlocks: finalityOf(served.network.chainId),
    payersWithCode: createPayerCode(served.client, now),
    readDueBatches: createDueBatches(database, served),
    meter: createGasMeter(served, settings, now),
    gasPolicy: createFeeCoveredPolicy(settings),
    now,
    randomBytes32: () => randomHex(32),
    checkpoint,
    log: createLogger('keeper', (process.env.LOG_LEVEL ?? 'silent') as 'silent'),
    metrics: createMetrics(),
    memory: createMemory(),
  }
}
