import type { Keeper } from '@tollkeeper/keeper/keeper'
import type { CheckpointName } from '@tollkeeper/keeper/settings/checkpoints'
import { closeBatch, readMinedBatches } from '@tollkeeper/ledger/batches/batches'
import { isHeld } from '@tollkeeper/ledger/batches/holds'
import { parseEther } from 'viem'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  attemptsOf,
  expectUnharmed,
  hourAgo,
  queueDue,
  queueOneDue,
  raiseBaseFee,
  settleAll,
  testClient,
  transactionsOf,
  untilRecorded,
  whileRunning,
} from '../support/keeperScenes.ts'
import { type QueuedPayment, useKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { findBreaches } from '../support/ledger.ts'
import { failAll, failPayments } from '../support/paymentPosition.ts'
import { until } from '../support/until.ts'

// Problems of a wallet's transactions that are not the fault of any payment.

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 1_500 })

const gasMoney = parseEther('10')

describe('a transaction that nodes refuse for lack of gas money', () => {
  /** Empties the wallet between the check of its balance and the broadcast. */
  function drainOnce(wallet: number, alsoBefore: () => void = () => {}) {
    let isDrained = false
    return async (name: string) => {
      if (name !== 'before-broadcast' || isDrained) return
      isDrained = true
      alsoBefore()
      await testClient(stack).setBalance({ address: walletAccount(wallet).address, value: 1n })
    }
  }

  async function pausedFor(wallet: number): Promise<string | null> {
    const [row] = await stack.database<{ reason: string | null }[]>`
      select paused_reason as reason from wallet_lease
      where address = ${walletAccount(wallet).address.toLowerCase()}`
    return row?.reason ?? null
  }

  test('behavior: pauses a wallet that has no gas money, settles its payments from another wallet, and resumes it once it is funded', async () => {
    const payments = await queueDue(stack, 2)
    await whileRunning(stack.keeper({ checkpoint: drainOnce(3), accounts: [walletAccount(3)] }), async () => {
      await until('the wallet is paused', async () => (await pausedFor(3)) === 'insufficient_gas_funds')
      await until('its batch is released', async () => {
        return (await transactionsOf(stack, payments)).every(({ result }) => result === 'released')
      })
      // Another keeper has a wallet with money.
      await settleAll(stack, payments, { accounts: [walletAccount(4)] })
    })
    await expectUnharmed(stack, payments)
    const [refused, ...others] = await transactionsOf(stack, payments)
    expect(refused).toMatchObject({ result: 'released', mined: null })
    expect(others).toHaveLength(1)

    // The rejected transaction's nonce is free. The next transaction with this nonce must offer more gas, although no
    // node has seen the rejected one.
    await testClient(stack).setBalance({ address: walletAccount(3).address, value: gasMoney })
    const later = await queueOneDue(stack)
    const inAMinute = stack.keeper({
      accounts: [walletAccount(3)],
      now: () => new Date(Date.now() + 60_000),
    })
    await whileRunning(inAMinute, () => until('it is settled', () => stack.isSettled([later])))
    expect((await transactionsOf(stack, [later])).at(-1)?.nonce).toBe(refused?.nonce)
    expect(await findBreaches(stack.database)).toEqual([])
  })

  test('behavior: if a wallet can’t afford a higher fee, keeps its batch until the transaction with the original fee is mined', async () => {
    const chain = testClient(stack)
    const address = walletAccount(5).address
    const payment = await queueOneDue(stack)
    await chain.setAutomine(false)
    let isLow = false
    const checkpoint = async (name: CheckpointName) => {
      if (name !== 'after-broadcast-recorded' || isLow) return
      isLow = true
      const [out] = await stack.database<{ wei: bigint }[]>`
        select gas * max_fee_per_gas as wei from transaction where wallet = ${address.toLowerCase()}`
      // The money is enough for the transaction in flight, but not for a higher fee.
      await chain.setBalance({ address, value: out?.wei ?? 0n })
    }
    await whileRunning(stack.keeper({ accounts: [walletAccount(5)], checkpoint }), async () => {
      await until('the wallet is paused', async () => (await pausedFor(5)) === 'insufficient_gas_funds')
      expect(await transactionsOf(stack, [payment])).toHaveLength(1)
      await chain.setAutomine(true)
      await chain.mine({ blocks: 1 })
      await until('it is settled', () => stack.isSettled([payment]))
    })
    await expectUnharmed(stack, [payment])
  })
})

test.each([
  ['an hour slow', -3_600_000],
  ['an hour fast', 3_600_000],
])(
  'behavior: raises a transaction’s fee at the same age even if the process’s clock is %s, because the database computes ages',
  async (_, offset) => {
    const wallet = offset < 0 ? 6 : 7
    const [buyer] = await stack.buyers(1, 50_000n)
    const acceptedAt = new Date(Date.now() - 3 * 3_600_000)
    const payment = await stack.queue({ buyer, price: 50_000n, acceptedAt })
    const chain = testClient(stack)
    await chain.setAutomine(false)
    const keeper = stack.keeper({
      accounts: [walletAccount(wallet)],
      now: () => new Date(Date.now() + offset),
    })
    await whileRunning(keeper, async () => {
      await until(
        'two replacements are stored',
        async () => (await transactionsOf(stack, [payment])).length >= 3,
      )
      await chain.setAutomine(true)
      await chain.mine({ blocks: 1 })
      await until('it is settled', () => stack.isSettled([payment]))
    })
    const ages = (await transactionsOf(stack, [payment])).map(({ ageMs }) => ageMs)
    for (const [index, age] of ages.slice(1).entries()) {
      expect((ages[index] ?? 0) - age).toBeGreaterThanOrEqual(stack.settings.replaceAfterMs)
    }
    await expectUnharmed(stack, [payment])
  },
)

test('behavior: if a reorg frees the nonce of a finalized batch, raises the fee of that nonce’s transaction', async () => {
  const chain = testClient(stack)
  const account = walletAccount(2)
  const snapshot = await chain.snapshot()
  const keeper = () => stack.keeper({ accounts: [account] })
  const first = await queueOneDue(stack)
  await whileRunning(keeper(), async () => {
    await until('it is settled', () => stack.isSettled([first]))
    await untilRecorded(stack)
  })
  const [before] = await transactionsOf(stack, [first])
  // Creates the state after a keeper has closed the batch. The batch's payment is marked as failed, so that no keeper settles it again.
  const mined = await readMinedBatches(stack.database, stack.served.network.chainId)
  for (const { id } of mined) await closeBatch(stack.database, id, 'settled', new Date())
  await failPayments(stack.database, [first.paymentId])
  const head = await chain.getBlockNumber({ cacheTime: 0 })
  await chain.revert({ id: snapshot })
  await chain.setAutomine(true)
  for (let i = 0n; i < 6n; i++) await chain.mine({ blocks: 1 })
  while ((await chain.getBlockNumber({ cacheTime: 0 })) <= head) await chain.mine({ blocks: 1 })

  const second = await queueOneDue(stack)
  // The base fee is the same as before, so an offer based on the base fee alone would equal the earlier offer.
  await whileRunning(keeper(), () => until('the next one is settled', () => stack.isSettled([second])))
  const [after] = await transactionsOf(stack, [second])
  expect(after?.nonce).toBe(before?.nonce)
  // The test closed the first batch before it was final, so its transaction still counts as mined.
  const breaches = await findBreaches(stack.database)
  expect(breaches.filter((breach) => !breach.includes('two mined transactions'))).toEqual([])
})

describe('gas that is too expensive: payments wait with a reason', () => {
  beforeEach(async () => {
    await failAll(stack.database)
    await raiseBaseFee(stack)
  })

  const nonceOf = () => stack.served.client.getTransactionCount({ address: walletAccount(0).address })
  const settings = () => ({ ...stack.settings, gasPerFee: 10n })
  const heldBy = async (payments: QueuedPayment[]) =>
    new Set(
      (
        await stack.database<{ reason: string | null }[]>`
          select held_by as reason from queue where payment_id in ${stack.database(payments.map((one) => one.paymentId))}`
      ).map(({ reason }) => reason),
    )
  const areHeld = (payments: QueuedPayment[], reason: string) =>
    until('they are held', async () => [...(await heldBy(payments))].join() === reason)
  const countBatches = async () =>
    (await stack.database<[{ count: number }]>`select count(*)::int as count from batch`)[0].count

  test('behavior: holds a payment with a reason if its gas costs more than ten times its fee, and settles it once gas is cheap', async () => {
    const payments = await queueDue(stack, 2)
    const [nonce, batches] = [await nonceOf(), await countBatches()]
    let offset = 0
    const now = () => new Date(Date.now() + offset)
    const dear = stack.keeper({ settings: { ...settings(), gasTokenUsd: 1_000_000_000_000n }, now })
    await whileRunning(dear, async () => {
      await areHeld(payments, 'gas_cost')
      // The payment's reason stays the same each time the queue is read.
      const seen = new Set<string | null>()
      for (let looks = 1; looks <= 3; looks++) {
        offset = looks * 16_000
        await until('the queue was read', async () => {
          for (const reason of await heldBy(payments)) seen.add(reason)
          return (await holdsOf(dear, 'gas_cost')) >= 2 * looks
        })
      }
      expect([...seen]).toEqual(['gas_cost'])
    })
    expect([await nonceOf(), await countBatches()]).toEqual([nonce, batches])
    expect(await attemptsOf(stack, payments)).toEqual([0])

    // Gas is cheap again.
    offset += 16_000
    await settleAll(stack, payments, { settings: { ...settings(), gasTokenUsd: 1_000n }, now })
    expect(await heldBy(payments)).toEqual(new Set([null]))
  })

  test('behavior: shortly before a payment expires, tops up its fee within the day’s budget', async () => {
    const [buyer] = await stack.buyers(1, 100_000n)
    const queueUrgent = () => stack.queue({ buyer, price: 50_000n, validFor: 200, acceptedAt: hourAgo() })
    const payments = [await queueUrgent()]
    const [nonce, batches] = [await nonceOf(), await countBatches()]
    const dear = { ...settings(), gasTokenUsd: 1_000_000_000_000n }
    const poor = stack.keeper({ settings: { ...dear, dailyBudget: 1n } })
    await whileRunning(poor, () => areHeld(payments, 'gas_budget'))
    expect([await nonceOf(), await countBatches()]).toEqual([nonce, batches])
    // The small budget doesn't delay a payment whose fee covers its gas.
    const carried = await queueDue(stack, 1)
    const cheap = { ...settings(), gasTokenUsd: 1_000n, dailyBudget: 1n }
    await settleAll(stack, carried, { settings: cheap })
    const rich = stack.keeper({ settings: { ...dear, dailyBudget: 10n ** 12n } })
    const more = [await queueUrgent()]
    await whileRunning(rich, () => until('it is settled', () => stack.isSettled(more)))
  })

  test('behavior: while the base fee is above the maximum, reports that and waits without counting an attempt', async () => {
    const payments = await queueDue(stack, 1)
    const [nonce, batches] = [await nonceOf(), await countBatches()]
    const capped = stack.keeper({ settings: { ...stack.settings, maxFeePerGas: 1n } })
    const { chainId } = stack.served.network
    const isTooDear = () => isHeld(stack.database, chainId, new Date())
    await whileRunning(capped, () => until('the network waits', isTooDear))
    expect([await nonceOf(), await countBatches()]).toEqual([nonce, batches])
    expect(await heldBy(payments)).toEqual(new Set([null]))
    await settleAll(stack, payments)
    expect(await holdsOf(capped, 'gas_price')).toBe(1)
  })
})

/** Returns how many times a keeper has held payments for this reason. */
async function holdsOf(keeper: Keeper, reason: string): Promise<number> {
  const metrics = await (await keeper.app.request('/metrics')).text()
  const line = new RegExp(`^tollkeeper_settlement_holds_total\\{.*reason="${reason}"\\} (\\d+)$`, 'm')
  return Number(line.exec(metrics)?.[1] ?? 0)
}
