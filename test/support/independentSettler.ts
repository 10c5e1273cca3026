import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createPayerCode } from '@tollkeeper/chain/payerCode'
import { createBudget } from '@tollkeeper/keeper/independent/budget'
import { fetchPending } from '@tollkeeper/keeper/independent/pendingQueue'
import { createSettler, type Settler, type SettlerOptions } from '@tollkeeper/keeper/independent/settler'
import { createMetrics } from '@tollkeeper/keeper/settings/metrics'
import { createLogger } from '@tollkeeper/runtime/log'
import { serve } from '@tollkeeper/runtime/serve'
import type { Address } from 'viem'
import { onTestFinished } from 'vitest'
import { createStackGateway } from './keeperGateway.ts'
import { type KeeperStack, walletAccount } from './keeperStack.ts'
import { randomHex } from './usdc.ts'

/**
 * Opens a settler without a database, with wallet 5, until the test ends. The settler reads the queue from a
 * gateway on the stack's database.
 */
export async function openIndependentSettler(
  stack: KeeperStack,
  {
    gasPerFee = null,
    now = () => new Date(),
    checkpoint,
  }: Partial<Pick<SettlerOptions, 'now' | 'checkpoint'>> & { gasPerFee?: bigint | null } = {},
): Promise<Settler> {
  const { served, settings } = stack
  const listening = { host: '127.0.0.1', port: 0, portVariable: 'API_PORT' }
  const server = await serve(createStackGateway(stack), listening)
  onTestFinished(() => server.close())
  const account = walletAccount(5)
  return createSettler({
    served,
    wallet: {
      address: account.address.toLowerCase() as Address,
      sign: (transaction) => account.signTransaction({ ...transaction, type: 'eip1559' }),
    },
    settings: { ...settings, ...gasLimitsOf(served.network, { gasPerFee }) },
    budget: createBudget(now),
    payersWithCode: createPayerCode(served.client, now),
    readPending: () => fetchPending(`http://127.0.0.1:${server.port}`, served, 0, now()),
    now,
    randomBytes32: () => randomHex(32),
    log: createLogger('test', 'silent'),
    metrics: createMetrics(),
    ...(checkpoint && { checkpoint }),
  })
}
