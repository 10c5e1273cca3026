import fc from 'fast-check'
import { createTestClient, http, publicActions } from 'viem'
import { expect, test } from 'vitest'
import { type ChaosRpc, startChaosRpc } from '../support/chaosRpc.ts'
import { isIndexed, isSettledOnChain, untilIndexed } from '../support/keeperScenes.ts'
import { type QueuedPayment, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import {
  describeState,
  findBlamed,
  findBreaches,
  findMisplaced,
  findUnknownTransactions,
  watchBroadcasts,
} from '../support/ledger.ts'
import { until } from '../support/until.ts'
import { sendDirectly } from '../support/usdc.ts'
import { type Actor, createActor } from './actor.ts'
import { replayable, seeds } from './seeds.ts'

// Moves keepers from checkpoint to checkpoint in an order drawn from a seed, while the chain, the RPC and strangers
// interfere. In any order, no one pays twice, and in the end everything is settled.

/** The wallet of each actor: two of them share the first wallet. */
const walletOfActor = [0, 0, 1]
const paymentsARun = 8
/** Returns the price of a payment. Every second payment settles alone, so that a wallet has several transactions in flight. */
const priceOf = (index: number) => (index % 2 === 0 ? 50_000n : 12_000_000n)

const anywhere = ['drop-reply', 'refuse', 'duplicate', '429', '500'] as const
const fault = fc.oneof(
  fc.record({
    method: fc.constantFrom('eth_call', 'eth_getTransactionCount', 'eth_blockNumber', 'eth_getBlockByNumber'),
    fault: fc.constantFrom(...anywhere, 'stale-head' as const),
  }),
  fc.record({
    method: fc.constant('eth_getTransactionReceipt'),
    fault: fc.constantFrom(...anywhere, 'null-receipt' as const),
  }),
  fc.record({
    method: fc.constant('eth_sendRawTransaction'),
    fault: fc.constantFrom(...anywhere, 'already-known' as const),
  }),
)
const actor = fc.nat({ max: walletOfActor.length - 1 })
const payment = fc.nat({ max: paymentsARun - 1 })

const event = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      kind: fc.constant('advance'),
      actor,
      checkpoints: fc.integer({ min: 1, max: 8 }),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('queue') }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('mine'), blocks: fc.integer({ min: 1, max: 3 }) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('fault'), actor, call: fault }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait'), seconds: fc.constantFrom(1, 3, 6, 20) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('stranger'),
      payment,
      half: fc.constantFrom('provider', 'fee'),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('die'), actor }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('stall') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('reorg') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('dearer') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('forget') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('index') }) },
)
type Event = typeof event extends fc.Arbitrary<infer One> ? One : never

// A lease expires when a run ends it, not by the clock.
const stack = useKeeperStack(
  { leaseMs: 3_600_000, rebroadcastAfterMs: 2_000, replaceAfterMs: 5_000 },
  { own: true },
)

const testClient = () =>
  createTestClient({ mode: 'hardhat', transport: http(stack.chain.url) }).extend(publicActions)

test.each(seeds([1, 2, 3]))(
  'behavior: settles everything once in any interleaving of keepers, chain, RPC and strangers, seed %i',
  (seed) =>
    replayable(seed, 'interleavings', () =>
      fc.assert(fc.asyncProperty(fc.array(event, { minLength: 30, maxLength: 50, size: 'max' }), play), {
        seed,
        numRuns: 1,
        endOnFailure: true,
      }),
    ),
)

test('behavior: if a reorg drops a reverted batch and the next batch, the keeper sends both batches again and deletes the recorded failure and its gas cost', async () => {
  const chain = testClient()
  await chain.setAutomine(true)
  const buyers = await stack.buyers(2, 100_000n)
  const startBlock = (await chain.getBlockNumber({ cacheTime: 0 })) + 1n
  const snapshot = await chain.snapshot()
  const keeper = await createActor(stack, { wallet: 3, rpcUrl: stack.chain.url })
  const wallet = walletAccount(3).address.toLowerCase()
  const payments: QueuedPayment[] = []
  const goOnUntil = (what: string, holds: () => Promise<boolean>) =>
    until(what, async () => {
      for (let i = 0; i < 6; i++) await keeper.advance()
      return holds()
    }).catch(async (error: unknown) => {
      throw new Error(await describeState(stack, [walletAccount(3).address]), { cause: error })
    })
  const queue = async () => {
    const buyer = buyers[payments.length]
    if (!buyer) throw new Error('no buyer')
    const payment = await stack.queue({ buyer, price: 50_000n, acceptedAt: new Date(Date.now() - 3_700_000) })
    payments.push(payment)
    return payment
  }
  const mined = () => stack.database<{ state: string; succeeded: boolean | null; cost: bigint | null }[]>`
    select b.state, t.succeeded, t.cost from transaction t join batch b on b.id = t.batch_id
    where t.wallet = ${wallet} and t.mined_block is not null order by t.nonce`
  const spent = async () => {
    const [row] = await stack.database<
      [{ cost: bigint }]
    >`select coalesce(sum(cost), 0) as cost from gas_cost`
    return row.cost
  }
  const spentBefore = await spent()

  await chain.setAutomine(false)
  const overtaken = await queue()
  await goOnUntil('the batch is broadcast', async () => {
    return (
      (await stack.database`select 1 from transaction where wallet = ${wallet} and broadcast_at is not null`)
        .length > 0
    )
  })
  await sendDirectly(stack, overtaken.provider)
  await sendDirectly(stack, overtaken.fee)
  await chain.mine({ blocks: 1 })
  await chain.setAutomine(true)
  await goOnUntil('it reverted', async () => (await mined())[0]?.succeeded === false)
  const next = await queue()
  // The index may show the payment as settled before the keeper has seen its transaction mined.
  await goOnUntil('the next one is settled', async () => {
    return (await stack.isSettled([next])) && (await mined()).length > 1
  })
  expect((await mined()).map(({ state }) => state)).toEqual(['mined', 'mined'])

  const head = await chain.getBlockNumber({ cacheTime: 0 })
  await chain.revert({ id: snapshot })
  await chain.setAutomine(true)
  for (let block = startBlock; block <= head + 3n; block++) await chain.mine({ blocks: 1 })
  await goOnUntil('both are settled again', async () => {
    if (await isIndexed(stack)) await chain.mine({ blocks: 1 })
    await letPass(1)
    return isSettledOnChain(stack, payments)
  })
  expect(await findMisplaced(stack, payments, startBlock)).toEqual([])
  expect(await findBreaches(stack.database)).toEqual([])
  // On the canonical chain neither transaction failed.
  await goOnUntil('both are recorded', async () => (await mined()).length === 2)
  expect((await mined()).map(({ succeeded }) => succeeded)).toEqual([true, true])
  const costs = (await mined()).reduce((sum, { cost }) => sum + BigInt(cost ?? 0n), 0n)
  expect((await spent()) - spentBefore).toBe(costs)
})

async function play(events: Event[]): Promise<void> {
  const chain = testClient()
  await chain.setAutomine(true)
  const buyers = await stack.buyers(paymentsARun, 12_000_000n)
  await chain.setAutomine(false)
  const broadcasts = watchBroadcasts(stack.database)
  const proxies: ChaosRpc[] = []
  for (const _ of walletOfActor) {
    proxies.push(
      await startChaosRpc({ target: stack.chain.url, onRawTransaction: broadcasts.onRawTransaction }),
    )
  }
  const start = (index: number) =>
    createActor(stack, { wallet: walletOfActor[index] ?? 0, rpcUrl: proxies[index]?.url ?? '' })
  const actors = await Promise.all(walletOfActor.map((_, index) => start(index)))
  const actorAt = (index: number) => actors[index] as Actor
  const payments: QueuedPayment[] = []
  const wallets = walletOfActor.map((wallet) => walletAccount(wallet).address)
  const startBlock = (await chain.getBlockNumber({ cacheTime: 0 })) + 1n
  let snapshot = await chain.snapshot()

  const mine = async (blocks: number) => {
    for (let i = 0; i < blocks; i++) await chain.mine({ blocks: 1 })
  }
  const queue = async () => {
    const buyer = buyers[payments.length]
    if (!buyer) return
    const price = priceOf(payments.length)
    payments.push(await stack.queue({ buyer, price, acceptedAt: new Date(Date.now() - 3_700_000) }))
  }
  const expireLeases = () => stack.database`update wallet_lease set expires_at = clock_timestamp()`

  const happen = async (one: Event): Promise<void> => {
    switch (one.kind) {
      case 'advance':
        for (let i = 0; i < one.checkpoints; i++) await actorAt(one.actor).advance()
        return
      case 'queue':
        return queue()
      case 'mine':
        return mine(one.blocks)
      case 'fault':
        return proxies[one.actor]?.next(one.call.method, one.call.fault)
      case 'wait':
        return letPass(one.seconds)
      case 'stranger': {
        const target = payments[one.payment]
        // The call fails only if this authorization has already been sent.
        if (target) await sendDirectly(stack, target[one.half]).catch(() => {})
        return
      }
      case 'die':
        actors[one.actor] = await start(one.actor)
        return
      case 'stall':
        await expireLeases()
        return
      case 'reorg': {
        const head = await chain.getBlockNumber({ cacheTime: 0 })
        // Deeper reorgs need an operator.
        if (head - startBlock > 20n) return
        await chain.revert({ id: snapshot })
        snapshot = await chain.snapshot()
        await chain.setAutomine(false)
        return mine(Number(head - startBlock) + 3)
      }
      case 'dearer':
        return chain.setNextBlockBaseFeePerGas({ baseFeePerGas: 5_000_000n })
      case 'forget':
        // A restarted node has lost its pending transactions.
        for (const { hash } of await pending()) await chain.dropTransaction({ hash })
        return
      case 'index':
        return untilIndexed(stack)
    }
  }
  const pending = async () => {
    const block = await chain.getBlock({ blockTag: 'pending', includeTransactions: true })
    return block.transactions
  }

  try {
    await queue()
    for (const one of events) {
      await happen(one)
      expect(await findBreaches(stack.database)).toEqual([])
      expect(broadcasts.unstored).toEqual([])
    }

    // The faults are over. Actors that wait at a checkpoint continue, and those that died have been restarted.
    for (const proxy of proxies) proxy.heal()
    for (const one of actors) while (one.standsAt() !== null) await one.advance()
    await expireLeases()
    const isOver = async () =>
      (await isSettledOnChain(stack, payments)) &&
      (await stack.database`select 1 from batch where state in ('claimed', 'broadcast', 'reorged')`)
        .length === 0
    await until('all that can settle is settled', async () => {
      for (const one of actors) for (let i = 0; i < 12; i++) await one.advance()
      if (await isIndexed(stack)) await mine(1)
      await letPass(1)
      return isOver()
    }).catch(async (error) => {
      console.error(
        await describeState(stack, wallets),
        actors.map((one) => one.standsAt()),
      )
      throw error
    })
    expect(await findBreaches(stack.database)).toEqual([])
    expect(broadcasts.unstored).toEqual([])
    expect(await findMisplaced(stack, payments, startBlock)).toEqual([])
    expect(
      await findUnknownTransactions(
        { database: stack.database, client: stack.served.client },
        wallets,
        startBlock,
      ),
    ).toEqual([])
    // No payment may be blamed for these faults.
    expect(await findBlamed(stack.database)).toEqual([])
  } finally {
    for (const proxy of proxies) await proxy.close()
    await expireLeases()
  }
}

/** Lets time pass without waiting, by moving all recorded times back. */
async function letPass(seconds: number): Promise<void> {
  const { database } = stack
  const time = database`${seconds} * interval '1 second'`
  await database`
    update transaction set created_at = created_at - ${time}, tried_at = tried_at - ${time},
      broadcast_at = broadcast_at - ${time}`
  await database`update queue set next_at = next_at - ${time} where next_at is not null`
}
