import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { acquireLease } from '@tollkeeper/ledger/batches/leases'
import { parseEther } from 'viem'
import { afterEach, beforeEach, expect, test } from 'vitest'
import {
  attemptsOf,
  expectUnharmed,
  mine,
  moveMoney,
  queueFor,
  reorg,
  testClient,
  transactionsOf,
  untilIndexed,
  untilRecorded,
  whileRunning,
} from '../support/keeperScenes.ts'
import { type QueuedPayment, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { findBreaches } from '../support/ledger.ts'
import { until } from '../support/until.ts'

// Several transactions of one wallet are in flight at once. Payments of 10 USDC or more settle alone, and each is
// sent before the previous transaction is mined.

/** These payments are due immediately, and settle alone. */
const price = 12_000_000n

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 2_000 }, { own: true })
const chain = () => testClient(stack)

beforeEach(() => chain().setAutomine(false))
afterEach(async () => {
  await chain().setAutomine(true)
  expect(await findBreaches(stack.database)).toEqual([])
})

/** Queues payments of new buyers, and turns automine off. */
async function queueUnmined(count: number, amount: bigint): Promise<QueuedPayment[]> {
  await chain().setAutomine(true)
  const buyers = await stack.buyers(count, amount)
  await chain().setAutomine(false)
  return queueFor(stack, buyers, amount)
}

const queueLarge = (count: number) => queueUnmined(count, price)

async function untilOut(payments: QueuedPayment[]): Promise<void> {
  await until('all are sent', async () => {
    const all = await transactionsOf(stack, payments)
    return new Set(all.filter(({ isOut }) => isOut).map(({ nonce }) => nonce)).size === payments.length
  })
}

const untilSettled = (payments: QueuedPayment[]) => until('all are settled', () => stack.isSettled(payments))

/** Mines until the payments are settled: one block each time the index has read the previous one. */
async function mineUntilSettled(payments: QueuedPayment[]): Promise<void> {
  await until('all are settled', async () => {
    if (await stack.isSettled(payments)) return true
    await untilIndexed(stack)
    await mine(stack, 1)
    return false
  })
}

test('the keeper settles payments of high value in one block, each in a separate transaction with the next nonce', async () => {
  const payments = await queueLarge(5)
  const next = await stack.served.client.getTransactionCount({ address: walletAccount(0).address })
  await whileRunning(stack.keeper(), async () => {
    await untilOut(payments)
    await mine(stack, 1)
    await untilSettled(payments)
    await untilRecorded(stack)
  })
  await expectUnharmed(stack, payments)
  const sent = await transactionsOf(stack, payments)
  expect(sent.map(({ nonce }) => Number(nonce))).toEqual(payments.map((_, index) => next + index))
  expect(new Set(sent.map(({ mined }) => mined)).size).toBe(1)
})

test('the keeper settles small payments one batch at a time while payments of high value are in flight', async () => {
  const large = await queueLarge(2)
  const small = await queueUnmined(3, 50_000n)
  await whileRunning(stack.keeper(), async () => {
    await until('all are sent', async () => (await transactionsOf(stack, [...large, ...small])).length === 3)
    await mine(stack, 1)
    await untilSettled([...large, ...small])
    await untilRecorded(stack)
  })
  await expectUnharmed(stack, [...large, ...small])
  expect(await transactionsOf(stack, small)).toHaveLength(1)
})

test('if the fees of three transactions are all too low, the keeper raises the fees one transaction at a time, in nonce order', async () => {
  const payments = await queueLarge(3)
  await whileRunning(stack.keeper(), async () => {
    await untilOut(payments)
    const [{ maxFee } = { maxFee: 0n }] = await transactionsOf(stack, payments)
    await chain().setNextBlockBaseFeePerGas({ baseFeePerGas: maxFee * 2n })
    await mine(stack, 1)
    // The base fee falls with every empty block.
    await until('a higher fee is offered', async () => (await transactionsOf(stack, payments)).length > 3)
    await mineUntilSettled(payments)
    await untilRecorded(stack)
  })
  await expectUnharmed(stack, payments)
  const all = await transactionsOf(stack, payments)
  const replaced = all.filter(({ kind }) => kind === 'replacement').map(({ nonce }) => nonce)
  expect(replaced.length).toBeGreaterThan(0)
  expect(replaced).toEqual(replaced.toSorted((a, b) => Number(a - b)))
})

test('if the node drops the transactions in flight, the keeper sends all of them again at the same fees', async () => {
  const payments = await queueLarge(3)
  await whileRunning(stack.keeper({ settings: { ...stack.settings, replaceAfterMs: 600_000 } }), async () => {
    await untilOut(payments)
    for (const { hash } of await transactionsOf(stack, payments)) await chain().dropTransaction({ hash })
    await until('the node has them again', async () => {
      const { transactions } = await chain().getBlock({ blockTag: 'pending' })
      return transactions.length === payments.length
    })
    await mine(stack, 1)
    await untilSettled(payments)
    await untilRecorded(stack)
  })
  await expectUnharmed(stack, payments)
  expect((await transactionsOf(stack, payments)).map(({ kind }) => kind)).toEqual([
    'settle',
    'settle',
    'settle',
  ])
})

test('if a payment fails because its payer moved the money away, the keeper settles the next payment in the same block', async () => {
  await chain().setAutomine(true)
  const buyers = await stack.buyers(2, price)
  await chain().setBalance({ address: buyers[0].address, value: parseEther('1') })
  await chain().setAutomine(false)
  const [poor, good] = await queueFor(stack, buyers, price)
  if (!poor || !good) throw new Error('nothing queued')
  await whileRunning(stack.keeper(), async () => {
    await untilOut([poor, good])
    await moveMoney(stack, buyers[0], price)
    await mine(stack, 1)
    await untilSettled([good])
    await until('the attempt is counted', async () => (await attemptsOf(stack, [poor]))[0] === 1)
    await untilRecorded(stack)
  })
  await expectUnharmed(stack, [good])
  expect(await stack.isSettled([poor])).toBe(false)
  const blocks = (await transactionsOf(stack, [poor, good])).map(({ mined }) => mined)
  expect(new Set(blocks).size).toBe(1)
})

test('the keeper settles both payments if a reorg drops the first payment while the second payment is in flight', async () => {
  await chain().setAutomine(true)
  const [first, second] = [await stack.buyers(1, price), await stack.buyers(1, price)]
  await chain().setAutomine(false)
  const snapshot = await chain().snapshot()
  const dropped = await queueFor(stack, first, price)
  const later: QueuedPayment[] = []
  await whileRunning(stack.keeper(), async () => {
    await untilOut(dropped)
    await mine(stack, 1)
    await untilSettled(dropped)
    later.push(...(await queueFor(stack, second, price)))
    await untilOut(later)
    await reorg(stack, snapshot)
    await chain().setAutomine(true)
    await mineUntilSettled([...dropped, ...later])
    await until('no batch is open', async () => {
      await mine(stack, 1)
      const open = await stack.database`select from batch where state in ('claimed', 'broadcast', 'reorged')`
      return open.length === 0
    })
  })
  await expectUnharmed(stack, [...dropped, ...later])
})

test('while a wallet’s gas money covers only one transaction, the keeper holds the second transaction back without pausing the wallet', async () => {
  const account = walletAccount(3)
  const wallet = account.address.toLowerCase()
  const payments = await queueLarge(2)
  let isLow = false
  const checkpoint = async (name: CheckpointName) => {
    if (name !== 'after-broadcast-recorded' || isLow) return
    isLow = true
    const [out] = await stack.database<{ wei: bigint }[]>`
      select gas * max_fee_per_gas as wei from transaction where wallet = ${wallet}`
    await chain().setBalance({ address: account.address, value: (BigInt(out?.wei ?? 0n) * 3n) / 2n })
  }
  await whileRunning(stack.keeper({ accounts: [account], checkpoint }), async () => {
    await until('the second is released', async () => {
      return (
        (await stack.database`select from batch where wallet = ${wallet} and result = 'released'`).length ===
        1
      )
    })
    expect(await transactionsOf(stack, payments)).toHaveLength(1)
    await mine(stack, 1)
    await untilOut(payments)
    await mine(stack, 1)
    await untilSettled(payments)
    await untilRecorded(stack)
  })
  await expectUnharmed(stack, payments)
  const [lease] = await stack.database<{ reason: string | null }[]>`
    select paused_reason as reason from wallet_lease where address = ${wallet}`
  expect(lease?.reason).toBeNull()
  await chain().setBalance({ address: account.address, value: parseEther('100') })
})

test('a second keeper process continues all in-flight transactions of the first process, and sends more transactions after them', async () => {
  const account = walletAccount(4)
  const payments = await queueLarge(2)
  await whileRunning(stack.keeper({ accounts: [account] }), () => untilOut(payments))
  const more = await queueLarge(1)
  const all = [...payments, ...more]
  await whileRunning(stack.keeper({ accounts: [account] }), async () => {
    await mineUntilSettled(all)
    await untilRecorded(stack)
  })
  await expectUnharmed(stack, all)
  // No other process holds the lease now.
  const wallet = {
    chainId: stack.served.network.chainId,
    address: account.address.toLowerCase() as `0x${string}`,
  }
  expect(await acquireLease(stack.database, { ...wallet, holder: 'test', ttlMs: 1 })).not.toBeNull()
  const nonces = (await transactionsOf(stack, all)).map(({ nonce }) => nonce)
  expect(new Set(nonces).size).toBe(3)
})

test('the database rejects two open batches of one wallet with the same nonce', async () => {
  const payments = await queueLarge(2)
  await whileRunning(stack.keeper(), () => untilOut(payments))
  const [first, second] = await transactionsOf(stack, payments)
  if (!first || !second) throw new Error('nothing was sent')
  const share = stack.database`
    update transaction set nonce = ${first.nonce}, max_fee_per_gas = ${second.maxFee * 2n} where hash = ${second.hash}`
  await expect(share).rejects.toThrow('transaction_nonce')
  await whileRunning(stack.keeper(), async () => {
    await mineUntilSettled(payments)
    await untilRecorded(stack)
  })
})
