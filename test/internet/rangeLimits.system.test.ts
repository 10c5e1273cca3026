import { openServedNetworks } from '@tollkeeper/chain/servedNetworks'
import { expect, test } from 'vitest'
import { startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { queueDue, testClient, whileRunning } from '../support/keeperScenes.ts'
import { startKeeperStack } from '../support/keeperStack.ts'
import { type Refusal, rangeLimit, startLimitedNode } from '../support/limitedNode.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'

// The keeper and the index use a node with a free plan, and a stranger settles one authorization of a payment
// directly.

const refusals: [blocks: number, refusal: Refusal][] = [
  [10, { http: 400, code: -32600, message: 'eth_getLogs: up to a 10 block range is supported on this plan' }],
  [5, { http: 429, code: -32005, message: 'too many blocks requested' }],
]

test.each(refusals)(
  'behavior: with a node that answers for at most %i blocks, the index records an authorization that a stranger settled, and the keeper settles the payment’s other authorization',
  async (blocks, refusal) => {
    await using chain = await startLocalChain({ network: 'localhost', blockTimeMs: 0 })
    // Create a history that the index has to read in parts. Mine the blocks one by one: if Hardhat mines many at
    // once, it only simulates the blocks in between.
    for (let block = 0; block < 100; block++) await testClient({ chain }).mine({ blocks: 1 })
    await using node = await startLimitedNode(chain.url, rangeLimit(blocks, refusal))
    const stack = await startKeeperStack({}, { chain, indexRpcUrl: node.url })
    try {
      const { network, deployment } = stack.served
      const networks = await openServedNetworks([{ network, deployment, rpcUrls: [node.url] }])
      const [payment] = await queueDue(stack)
      await stack.served.client.waitForTransactionReceipt({
        hash: await sendDirectly(stack, payment.provider),
      })
      await whileRunning(stack.keeper({ networks }), () =>
        until('both halves are settled', () => stack.isSettled([payment])),
      )
      expect(node.calls.some(({ isRefused }) => isRefused)).toBe(true)
    } finally {
      await stack.close()
    }
  },
)
