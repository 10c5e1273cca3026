import { readEvidence } from '@tollkeeper/chain/evidence'
import { finalizeMined } from '@tollkeeper/keeper/loops/finalize'
import { createKeeperRecorder } from '@tollkeeper/keeper/loops/recorder'
import { readRecordState } from '@tollkeeper/keeper/loops/recordState'
import { createWorker } from '@tollkeeper/keeper/loops/worker'
import { readMinedBatches } from '@tollkeeper/ledger/batches/batches'
import { recordEvents, setFinal } from '@tollkeeper/ledger/facts/record'
import { type Address, type Hash, parseEther } from 'viem'
import { expect, onTestFinished, test } from 'vitest'
import { startLocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { startChaosRpc } from '../support/chaosRpc.ts'
import { createKeeperContext } from '../support/keeperContext.ts'
import {
  attemptsOf,
  expectUnharmed,
  hourAgo,
  isSettledOnChain,
  mine,
  moveMoney,
  queueDue,
  queueOneDue,
  settleAll,
  testClient,
  untilIndexed,
  whileRunning,
} from '../support/keeperScenes.ts'
import { startKeeperStack, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { countFinal, positionOf } from '../support/paymentPosition.ts'
import { until } from '../support/until.ts'
import { randomHex, sendDirectly } from '../support/usdc.ts'

const stack = useKeeperStack({}, { own: true })

test('behavior: after a reorg, the keeper checks a settled batch again and releases payments that the batch no longer settles', async () => {
  const chain = testClient(stack)
  const payments = await queueDue(stack, 2)
  const [good] = payments
  if (!good) throw new Error('nothing queued')
  const [buyer] = await stack.buyers(1, 60_000n)
  const poor = await stack.queue({ buyer, price: 60_000n, acceptedAt: hourAgo() })
  await chain.setBalance({ address: buyer.address, value: parseEther('10') })
  const snapshot = await chain.snapshot()
  const keeper = stack.keeper({ accounts: [walletAccount(1)] })
  await whileRunning(keeper, async () => {
    await until('all are settled', () => stack.isSettled([...payments, poor]))
    // Wait until the keeper has recorded the batch together with its block.
    await until('the keeper has recorded it', async () =>
      /attempts_total\{network="localhost",result="settled"\} 3/.test(
        await (await keeper.app.request('/metrics')).text(),
      ),
    )
    const head = await chain.getBlockNumber({ cacheTime: 0 })
    const settledBy = async () => (await stack.halves(poor))[0]?.blockHash
    const firstBlock = await settledBy()

    await chain.revert({ id: snapshot })
    await chain.setAutomine(false)
    // The buyer moves its money away before the same bytes are mined again.
    await moveMoney(stack, buyer, 60_000n)
    await chain.mine({ blocks: 1 })
    await chain.setAutomine(true)
    while ((await chain.getBlockNumber({ cacheTime: 0 })) < head + 3n) await chain.mine({ blocks: 1 })
    await until('the others are settled again, in another block', async () => {
      const [half] = await stack.halves(good)
      return half?.state === 'settled' && half.blockHash !== firstBlock
    })
    await until('it is released, to be retried later', async () => (await attemptsOf(stack, [poor]))[0] === 1)
  })
  await expectUnharmed(stack, payments)
  expect(await positionOf(stack.database, poor)).toMatchObject({
    stage: 'isolated',
    failureCode: 'insufficient_balance',
  })
})

test('behavior: the keeper reopens finalized payments if a reorg drops their block after the block was confirmed', async () => {
  const chain = testClient(stack)
  const payments = await queueDue(stack, 1)
  const [payment] = payments
  if (!payment) throw new Error('nothing queued')
  /** Creates a keeper that takes a step only when the test calls it. Every step checks for reorgs. */
  const createStepper = () => {
    const context = createKeeperContext(stack)
    const recorder = createKeeperRecorder(context, { lookEveryMs: { young: 0, final: 0 } })
    return {
      look: async () => recorder.followReorgs(await readRecordState(context)),
      record: () => recorder.record(),
    }
  }
  const [one, other] = [createStepper(), createStepper()]
  const isFinalized = async () => (await countFinal(stack.database, payments)) === 1
  const fork = await chain.getBlockNumber({ cacheTime: 0 })
  const confirmed = async () => {
    const rows = await stack.database<{ hash: Hash }[]>`
      select hash from recorded_block where number > ${fork} and confirmed_at is not null`
    return rows.map(({ hash }) => hash)
  }

  const snapshot = await chain.snapshot()
  for (const { look } of [one, other]) expect(await look()).not.toBeNull()
  // Before these two keepers check again, a third keeper settles, notifies and finalizes.
  await whileRunning(stack.keeper(), async () => {
    await until('it is settled', () => stack.isSettled(payments))
    await mine(stack, 33)
    await until('it is finalized', isFinalized)
  })
  const before = await confirmed()
  expect(before).toHaveLength(1)

  await chain.revert({ id: snapshot })
  await mine(stack, 37)
  await sendDirectly(stack, payment.fee)
  await mine(stack, 3)
  await untilIndexed(stack)
  // All confirmed blocks belong to one chain, so the new block is recorded only after the dropped block is removed.
  await other.record()
  expect(await confirmed()).toEqual(before)
  expect(await one.look()).toBeNull()
  expect(await confirmed()).toEqual([])
  expect(await isFinalized()).toBe(false)

  expect(await one.look()).not.toBeNull()
  await one.record()
  const after = await confirmed()
  expect(after).toHaveLength(1)

  // A dropped block may be marked as final without being confirmed. The check for reorgs removes such a block as well. Until then, the block
  // doesn't keep other blocks from being confirmed.
  const scope = { chainId: stack.served.network.chainId, token: stack.served.token }
  const { from: authorizer, to: recipient, value, nonce } = payment.provider
  const place = {
    txHash: randomHex(32),
    logIndex: 0,
    blockNumber: fork + 2n,
    blockHash: randomHex(32),
    blockTime: 1n,
  }
  await recordEvents(
    stack.database,
    scope,
    [{ authorizer, recipient, value, nonce, state: 'used', ...place }],
    'lookup',
  )
  await setFinal(stack.database, scope.chainId, place)
  await one.record()
  expect(await confirmed()).toEqual(after)
  await one.look()
  expect((await stack.halves(payment))[0]?.state).toBe('open')
})

test('behavior: if a stranger sent the provider’s authorization and a reorg drops it, the keeper settles that authorization even after a batch settled only the fee', async () => {
  const chain = testClient(stack)
  const [payment] = await queueDue(stack, 1)
  const context = createKeeperContext(stack)
  const account = walletAccount(2)
  const worker = createWorker(context, randomHex(8), {
    address: account.address.toLowerCase() as Address,
    sign: (transaction) => account.signTransaction({ ...transaction, type: 'eip1559' }),
  })
  const fork = await chain.getBlockNumber({ cacheTime: 0 })
  const snapshot = await chain.snapshot()
  const { chainId } = stack.served.network
  const scope = { chainId, token: stack.served.token }
  const receipt = await chain.waitForTransactionReceipt({ hash: await sendDirectly(stack, payment.provider) })
  await recordEvents(stack.database, scope, readEvidence(receipt, stack.served, 1n), 'lookup')
  await chain.revert({ id: snapshot })
  await mine(stack, 3)
  await untilIndexed(stack)

  // Until the next check for reorgs, only the fee seems to be unsettled.
  await until('a batch is mined', async () => {
    await worker.step()
    return (await readMinedBatches(stack.database, chainId)).length === 1
  })
  await finalizeMined(context, null)
  expect((await stack.halves(payment)).map(({ state }) => state)).toEqual(['settled', 'settled'])
  await untilIndexed(stack)
  const recorder = createKeeperRecorder(context)
  expect(await recorder.followReorgs(await readRecordState(context))).not.toBeNull()
  expect((await stack.halves(payment)).map(({ state }) => state)).toEqual(['open', 'settled'])
  await finalizeMined(context, fork + 100n)
  expect(await readMinedBatches(stack.database, chainId)).toEqual([])

  await settleAll(stack, [payment])
  await expectUnharmed(stack, [payment])
})

test('behavior: after a reorg of 36 blocks, the keeper reopens finalized payments and a refund, notifies again and settles them again', async () => {
  // Ponder can't follow a reorg of blocks that it treats as final. At its start, it treats the block 30 below the head as final. It finalizes
  // more blocks only when the head is 60 blocks above the last final block. On a new stack, none of the 36 dropped blocks is final for Ponder yet.
  const stack = await startKeeperStack({}, { own: true })
  onTestFinished(() => stack.close())
  const chain = testClient(stack)
  const refunded = await queueOneDue(stack)
  await settleAll(stack, [refunded])
  const [wallet] = await stack.buyers(1, 20_000n)
  const payments = await queueDue(stack, 2)
  const refund = await stack.queueRefund({
    of: refunded,
    number: 1,
    wallet,
    value: 20_000n,
    acceptedAt: hourAgo(),
  })
  const all = [...payments, refund]
  const ids = stack.database(all.map(({ paymentId }) => paymentId))
  const notifiedEvents = async () => {
    const rows = await stack.database<{ event: string }[]>`
      select event from outbox where payment_id in ${ids} order by event`
    return rows.map(({ event }) => event)
  }
  const isFinalized = async () => (await countFinal(stack.database, all)) === 3
  const snapshot = await chain.snapshot()
  await whileRunning(stack.keeper(), async () => {
    await until('they are settled', () => stack.isSettled(all))
    await mine(stack, 35)
    await until('they are finalized', isFinalized)
    expect(await notifiedEvents()).toEqual(['payment.settled', 'payment.settled', 'refund.settled'])
    const [before] = payments[0] ? await stack.halves(payments[0]) : []

    await chain.revert({ id: snapshot })
    await chain.setAutomine(true)
    await mine(stack, 40)
    await until('they are settled in another block', async () => {
      const halves = await Promise.all(all.map((one) => stack.halves(one)))
      return halves
        .flat()
        .every(({ state, blockHash }) => state === 'settled' && blockHash !== before?.blockHash)
    })
    await mine(stack, 2)
    await until('their provider was notified', async () => (await notifiedEvents()).length === 9)
  })
  expect(await notifiedEvents()).toEqual([
    ...Array(2).fill('payment.reverted'),
    ...Array(4).fill('payment.settled'),
    'refund.reverted',
    ...Array(2).fill('refund.settled'),
  ])
  const [reverted] = await stack.database<{ data: unknown }[]>`
    select data from outbox where event = 'refund.reverted'`
  expect(reverted?.data).toEqual({ network: 'localhost', paymentId: refunded.paymentId, number: 1 })
  await expectUnharmed(stack, payments)
  // The refund moved once on the remaining chain, and the record shows it there.
  expect(await isSettledOnChain(stack, [refund])).toBe(true)
  expect(await attemptsOf(stack, [refund])).toEqual([0])
  expect(await stack.balanceOf(wallet.address)).toBe(0n)
  expect(await stack.balanceOf(refunded.provider.from)).toBe(20_000n)
})

test('behavior: the keeper settles payments despite a gap in the index, because it needs only its own transaction’s receipt', async () => {
  const chain = await startLocalChain({ network: 'localhost', blockTimeMs: 0 })
  const indexRpc = await startChaosRpc({ target: chain.url })
  const stack = await startKeeperStack({}, { chain, indexRpcUrl: indexRpc.url })
  onTestFinished(async () => {
    await stack.close()
    await indexRpc.close()
    await chain.close()
  })
  const payments = await queueDue(stack, 2)
  indexRpc.always('eth_getTransactionReceipt', 'null-receipt')
  const keeper = stack.keeper()
  await whileRunning(keeper, async () => {
    await until('they are settled', () => stack.isSettled(payments))
    await until('the index has a gap', async () => {
      return (
        (await stack.database`select from indexer.index_gap where reason = 'receipt_unavailable'`).length > 0
      )
    })
    expect(await stack.database`select from indexer.authorization`).toHaveLength(0)
    await mine(stack, 33)
    await untilIndexed(stack)
    await until('their batch is closed', async () => {
      return (
        (await stack.database`select from batch where state = 'closed' and result = 'settled'`).length === 1
      )
    })
    await until('/readyz reports no problem', async () => (await keeper.app.request('/readyz')).ok)
  })
  await expectUnharmed(stack, payments)
  const notifications = await stack.database`select from outbox where event = 'payment.settled'`
  expect(notifications).toHaveLength(2)
})
