import { createWalletClient, http, parseEther } from 'viem'
import { expect, onTestFinished, test } from 'vitest'
import { usdcAbi } from '#protocol/abi/usdc'
import {
  attemptsOf,
  expectUnharmed,
  queueDue,
  revertTo,
  testClient,
  whileRunning,
} from '../support/keeperScenes.ts'
import { platformWallet, startKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { until } from '../support/until.ts'

test('behavior: after a reorg a settled batch is looked at again: what is no longer settled by it is let go', async () => {
  // Nobody's batches but this one's.
  const stack = await startKeeperStack()
  onTestFinished(() => stack.close())
  const chain = testClient(stack)
  const payments = await queueDue(stack, 2)
  const [good] = payments
  if (!good) throw new Error('nothing queued')
  const [buyer] = await stack.buyers(1, 60_000n)
  if (!buyer) throw new Error('no buyer')
  const poor = await stack.queue({ buyer, price: 60_000n, acceptedAt: new Date(Date.now() - 3_600_000) })
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

    await revertTo(stack, snapshot)
    await chain.setAutomine(false)
    // The buyer's money goes elsewhere before the same bytes are mined again.
    const wallet = createWalletClient({ account: buyer, transport: http(stack.chain.url) })
    await wallet.writeContract({
      address: stack.served.token,
      abi: usdcAbi,
      functionName: 'transfer',
      args: [platformWallet, 60_000n],
      gas: 100_000n,
      maxFeePerGas: 50_000_000_000n,
      maxPriorityFeePerGas: 2_000_000_000n,
      chain: null,
    })
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
  const [row] = await stack.database<{ code: string; active: number }[]>`
    select failure_code as code,
      (select count(*)::int from batch_item i where i.payment_id = p.id and i.active) as active
    from payment p where id = ${poor.paymentId}`
  expect(row).toEqual({ code: 'insufficient_balance', active: 0 })
})
