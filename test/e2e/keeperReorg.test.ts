import { readEvidence } from '@tollkeeper/chain/evidence'
import { concludeMined } from '@tollkeeper/keeper/loops/conclude'
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
import { countFinal, standingOf } from '../support/standing.ts'
import { until } from '../support/until.ts'
import { randomHex, sendDirectly } from '../support/usdc.ts'

const stack = useKeeperStack({}, { own: true })

test('behavior: after a reorg a settled batch is looked at again: what is no longer settled by it is let go', async () => {
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
    // It remembers the batch by its block.
    await until('the keeper has seen that', async () =>
      /attempts_total\{network="localhost",result="settled"\} 3/.test(
        await (await keeper.app.request('/metrics')).text(),
      ),
    )
    const head = await chain.getBlockNumber({ cacheTime: 0 })
    const settledBy = async () => (await stack.halves(poor))[0]?.blockHash
    const firstBlock = await settledBy()

    await chain.revert({ id: snapshot })
    await chain.setAutomine(false)
    // The buyer's money goes elsewhere before the same bytes are mined again.
    await moveMoney(stack, buyer, 60_000n)
    await chain.mine({ blocks: 1 })
    await chain.setAutomine(true)
    while ((await chain.getBlockNumber({ cacheTime: 0 })) < head + 3n) await chain.mine({ blocks: 1 })
    await until('the others are settled again, in another block', async () => {
      const [half] = await stack.halves(good)
      return half?.state === 'settled' && half.blockHash !== firstBlock
    })
    await until('it is let go, and tried again later', async () => (await attemptsOf(stack, [poor]))[0] === 1)
  })
  await expectUnharmed(stack, payments)
  expect(await standingOf(stack.database, poor)).toMatchObject({
    stage: 'quarantined',
    failureCode: 'insufficient_balance',
  })
})

test('behavior: a reorg of a block that was confirmed since the last look takes back what was concluded on it', async () => {
  const chain = testClient(stack)
  const payments = await queueDue(stack, 1)
  const [payment] = payments
  if (!payment) throw new Error('nothing queued')
  /** A keeper that takes a step when it is told to, and looks for reorgs however short after the look before. */
  const createStepper = () => {
    const context = createKeeperContext(stack)
    const recorder = createKeeperRecorder(context, { lookEveryMs: { young: 0, final: 0 } })
    return {
      look: async () => recorder.followReorgs(await readRecordState(context)),
      record: () => recorder.record(),
    }
  }
  const [one, other] = [createStepper(), createStepper()]
  const isConcluded = async () => (await countFinal(stack.database, payments)) === 1
  const fork = await chain.getBlockNumber({ cacheTime: 0 })
  const confirmed = async () => {
    const rows = await stack.database<{ hash: Hash }[]>`
      select hash from recorded_block where number > ${fork} and confirmed_at is not null`
    return rows.map(({ hash }) => hash)
  }

  const snapshot = await chain.snapshot()
  for (const { look } of [one, other]) expect(await look()).not.toBeNull()
  // Before the next look a third keeper settles, tells and concludes.
  await whileRunning(stack.keeper(), async () => {
    await until('it is settled', () => stack.isSettled(payments))
    await mine(stack, 33)
    await until('it is concluded', isConcluded)
  })
  const before = await confirmed()
  expect(before).toHaveLength(1)

  await chain.revert({ id: snapshot })
  await mine(stack, 37)
  await sendDirectly(stack, payment.fee)
  await mine(stack, 3)
  await untilIndexed(stack)
  // All that is confirmed is of one chain: the new block waits until what the reorg took is taken back.
  await other.record()
  expect(await confirmed()).toEqual(before)
  expect(await one.look()).toBeNull()
  expect(await confirmed()).toEqual([])
  expect(await isConcluded()).toBe(false)

  expect(await one.look()).not.toBeNull()
  await one.record()
  const after = await confirmed()
  expect(after).toHaveLength(1)

  // A block that was final before it was confirmed goes as well, and holds nobody up.
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

test("behavior: a reorg takes back a stranger's half after a batch has settled the other one: it is settled, too", async () => {
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

  // Before anybody looks for reorgs, the fee alone seems to be left.
  await until('a batch is mined', async () => {
    await worker.step()
    return (await readMinedBatches(stack.database, chainId)).length === 1
  })
  await concludeMined(context, null)
  expect((await stack.halves(payment)).map(({ state }) => state)).toEqual(['settled', 'settled'])
  await untilIndexed(stack)
  const recorder = createKeeperRecorder(context)
  expect(await recorder.followReorgs(await readRecordState(context))).not.toBeNull()
  expect((await stack.halves(payment)).map(({ state }) => state)).toEqual(['open', 'settled'])
  await concludeMined(context, fork + 100n)
  expect(await readMinedBatches(stack.database, chainId)).toEqual([])

  await settleAll(stack, [payment])
  await expectUnharmed(stack, [payment])
})

test('behavior: a reorg of 36 blocks takes back what was concluded, a refund too: it is told, settled again, and told again', async () => {
  // Where Ponder's finality stands depends on the blocks since its start: here all 36 are above it.
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
  const toldOf = async () => {
    const rows = await stack.database<{ event: string }[]>`
      select event from outbox where payment_id in ${ids} order by event`
    return rows.map(({ event }) => event)
  }
  const isConcluded = async () => (await countFinal(stack.database, all)) === 3
  const snapshot = await chain.snapshot()
  await whileRunning(stack.keeper(), async () => {
    await until('they are settled', () => stack.isSettled(all))
    await mine(stack, 35)
    await until('they are concluded', isConcluded)
    expect(await toldOf()).toEqual(['payment.settled', 'payment.settled', 'refund.settled'])
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
    await until('their provider was told of it', async () => (await toldOf()).length === 9)
  })
  expect(await toldOf()).toEqual([
    ...Array(2).fill('payment.reverted'),
    ...Array(4).fill('payment.settled'),
    'refund.reverted',
    ...Array(2).fill('refund.settled'),
  ])
  const [reverted] = await stack.database<{ data: unknown }[]>`
    select data from outbox where event = 'refund.reverted'`
  expect(reverted?.data).toEqual({ network: 'localhost', paymentId: refunded.paymentId, number: 1 })
  await expectUnharmed(stack, payments)
  // The refund moved once on the chain that stands, and that is where the record shows it.
  expect(await isSettledOnChain(stack, [refund])).toBe(true)
  expect(await attemptsOf(stack, [refund])).toEqual([0])
  expect(await stack.balanceOf(wallet.address)).toBe(0n)
  expect(await stack.balanceOf(refunded.provider.from)).toBe(20_000n)
})

test("behavior: a hole in the index holds no batch: the keeper's own receipt is enough", async () => {
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
    await until('the index has a hole', async () => {
      return (
        (await stack.database`select from indexer.quarantine where reason = 'receipt_unavailable'`).length > 0
      )
    })
    expect(await stack.database`select from indexer.authorization`).toHaveLength(0)
    await mine(stack, 33)
    await untilIndexed(stack)
    await until('their batch is closed', async () => {
      return (
        (await stack.database`select from batch where state = 'closed' and outcome = 'settled'`).length === 1
      )
    })
    await until('/readyz says that all is well', async () => (await keeper.app.request('/readyz')).ok)
  })
  await expectUnharmed(stack, payments)
  const told = await stack.database`select from outbox where event = 'payment.settled'`
  expect(told).toHaveLength(2)
})
