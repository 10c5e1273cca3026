import { finalityOf } from '#chain/finality'
import { gasLimitsOf } from '#chain/gasLimits'
import { createGasMeter } from '#chain/gasShares'
import { createPayerCode } from '#chain/payerCode'
import { type Context, createMemory } from '#keeper/loops/context'
import { createMetrics } from '#keeper/settings/metrics'
import { createDueBatches } from '#ledger/queue/dueBatches'
import { createLogger } from '#process/log'
import type { KeeperStack } from './keeperStack.ts'
import { randomHex } from './usdc.ts'

/** What a keeper's loops work with, for tests that take their steps one by one. */
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
    now,
    randomBytes32: () => randomHex(32),
    checkpoint,
    log: createLogger('keeper', (process.env.LOG_LEVEL ?? 'silent') as 'silent'),
    metrics: createMetrics(),
    memory: createMemory(),
  }
}
