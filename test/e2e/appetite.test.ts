import { createVoidWatch } from '@tollkeeper/keeper/loops/lookups'
import { encodeFunctionData, parseAbi, toFunctionSelector } from 'viem'
import { expect, type TestContext, test } from 'vitest'
import type { ChaosRpc } from '../support/chaosRpc.ts'
import {
  expectUnharmed,
  hourAgo,
  queueDue,
  testClient,
  untilIndexed,
  useChaosRpc,
  whileRunning,
} from '../support/keeperScenes.ts'
import { useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { voidNow } from '../support/paymentPosition.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'

// Counts how many calls a keeper makes to its node. docs/performance.md publishes these figures.

const stack = useKeeperStack({}, { own: true })
const behind = useChaosRpc(stack)

/** Counts calls from now on. */
function countCalls(only: (call: ChaosRpc['calls'][number]) => boolean = () => true): () => number {
  const from = behind.rpc.calls.length
  return () => behind.rpc.calls.slice(from).filter(only).length
}

/** Leaves out reads of the head, whose number depends on time instead of work. The first test measures them. */
const isNoHead = ({ method }: ChaosRpc['calls'][number]) => method !== 'eth_blockNumber'

function isPausedQuestion({ method, params }: ChaosRpc['calls'][number]): boolean {
  const [call] = params as [{ data?: string } | undefined]
  return method === 'eth_call' && call?.data === toFunctionSelector('paused()')
}

async function setPaused(isPaused: boolean): Promise<void> {
  const abi = parseAbi(['function pauser() view returns (address)', 'function pause()', 'function unpause()'])
  const chain = testClient(stack)
  const { token: address } = stack.served
  const pauser = await stack.served.client.readContract({ address, abi, functionName: 'pauser' })
  await chain.impersonateAccount({ address: pauser })
  await chain.setBalance({ address: pauser, value: 10n ** 18n })
  const data = encodeFunctionData({ abi, functionName: isPaused ? 'pause' : 'unpause' })
  const hash = await chain.request({
    method: 'eth_sendTransaction',
    params: [{ from: pauser, to: address, data }],
  } as never)
  await stack.served.client.waitForTransactionReceipt({ hash })
}

test('behavior: eight idle keeper wallets share one read of the chain’s head', async ({
  annotate,
}: TestContext) => {
  let steps = 0
  const keeper = stack.keeper({
    networks: [behind.served],
    accounts: Array.from({ length: 8 }, (_, index) => walletAccount(index)),
    checkpoint: (name) => {
      if (name === 'before-claim') steps += 1
    },
  })
  const calls = countCalls()
  const began = performance.now()
  await whileRunning(keeper, () => until('160 steps are taken', () => steps >= 160))
  await annotate(`${calls()} calls in ${steps} steps`)
  // A keeper reads the head once every two seconds, regardless of its number of steps, and calls the token once.
  expect(calls()).toBeLessThanOrEqual(4 + (performance.now() - began) / 1_900)
})

test('behavior: while USDC is paused, 300 queued payments cause at most one batch, and then one call to the node per check', async ({
  annotate,
}: TestContext) => {
  const payments = await queueDue(stack, 300)
  await setPaused(true)
  await untilIndexed(stack)
  let offset = 0
  const seen = new Map<string, number>()
  const keeper = stack.keeper({
    networks: [behind.served],
    now: () => new Date(Date.now() + offset),
    checkpoint: (name) => void seen.set(name, (seen.get(name) ?? 0) + 1),
  })
  const calls = countCalls(isNoHead)
  const looks = countCalls(isPausedQuestion)
  await whileRunning(keeper, async () => {
    // The keeper learns of the pause either by its first check or by a batch that fails.
    for (let look = 1; look <= 20; look++) {
      await until(`check ${look} was made`, () => looks() >= look)
      offset += 15_000
    }
    await annotate(`${calls()} calls in ${looks()} checks and ${seen.get('after-claim') ?? 0} batches`)
    expect(calls()).toBeLessThanOrEqual(150 + 50 + 2 * looks())
    expect(seen.get('after-claim') ?? 0).toBeLessThanOrEqual(1)

    await setPaused(false)
    offset += 60_000
    await until('all are settled', () => stack.isSettled(payments))
  })
  await expectUnharmed(stack, payments)
})

test('behavior: if a provider settles the cheapest of 206 voided payments anyway, the keeper finds the settlement within two checks that make two calls to the node each', async ({
  annotate,
}: TestContext) => {
  const [buyer] = await stack.buyers(1, 50_000n)
  const decoys = await Promise.all(
    Array.from({ length: 205 }, () => stack.queue({ buyer, price: 60_000n, acceptedAt: hourAgo() })),
  )
  // This payment sorts last, both by value and by id.
  const paymentId = `pay_${'f'.repeat(32)}`
  const taken = await stack.queue({ buyer, price: 50_000n, acceptedAt: hourAgo(), paymentId })
  await Promise.all([...decoys, taken].map((one) => voidNow(stack.database, one)))
  const hash = await sendDirectly(stack, taken.provider)
  await stack.served.client.waitForTransactionReceipt({ hash })

  const look = createVoidWatch({ sql: stack.database, served: behind.served, now: () => new Date() })
  const calls = countCalls()
  await look()
  await look()
  await annotate(`${calls()} calls in two checks`)
  expect(calls()).toBeLessThanOrEqual(4)
  const found = await stack.database<{ id: string }[]>`select payment_id as id from lookup`
  expect(found.map(({ id }) => id)).toEqual([paymentId])
})
