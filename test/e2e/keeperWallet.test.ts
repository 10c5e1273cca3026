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
import { giveUp, giveUpAll } from '../support/standing.ts'
import { until } from '../support/until.ts'

// What a wallet's transactions may meet with that is nobody's payment's fault.

const stack = useKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 1_500 })

const gasMoney = parseEther('10')

describe('refused for gas after the check', () => {
  /** Takes the wallet's money away between the look at its balance and the broadcast. */
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

  test('behavior: pauses a wallet without gas money, gives its payments to another one, and resumes it once it has money', async () => {
    const payments = await queueDue(stack, 2)
    await whileRunning(stack.keeper({ checkpoint: drainOnce(3), accounts: [walletAccount(3)] }), async () => {
      await until('the wallet is paused', async () => (await pausedFor(3)) === 'insufficient_gas_funds')
      await until('its batch is let go', async () => {
        return (await transactionsOf(stack, payments)).every(({ outcome }) => outcome === 'released')
      })
      // Another keeper has a wallet with money.
      await settleAll(stack, payments, { accounts: [walletAccount(4)] })
    })
    await expectUnharmed(stack, payments)
    const [refused, ...others] = await transactionsOf(stack, payments)
    expect(refused).toMatchObject({ outcome: 'released', mined: null })
    expect(others).toHaveLength(1)

    // The nonce of what was refused is free; what is offered for it now is more, though nobody has seen the other offer.
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

  test('behavior: a wallet that has no money to offer more keeps its batch, and the first offer is mined', async () => {
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
      // Enough for what is out, and not for more.
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
  'behavior: a process whose clock is %s offers more when every other one would: ages are the database’s',
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

test('behavior: a reorg gives back the nonce of a batch that is over: what is offered for it now is more', async () => {
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
  // As a keeper leaves it that has closed the batch; its payment is no longer wanted.
  const mined = await readMinedBatches(stack.database, stack.served.network.chainId)
  for (const { id } of mined) await closeBatch(stack.database, id, 'settled', new Date())
  await giveUp(stack.database, [first.paymentId])
  const head = await chain.getBlockNumber({ cacheTime: 0 })
  await chain.revert({ id: snapshot })
  await chain.setAutomine(true)
  for (let i = 0n; i < 6n; i++) await chain.mine({ blocks: 1 })
  while ((await chain.getBlockNumber({ cacheTime: 0 })) <= head) await chain.mine({ blocks: 1 })

  const second = await queueOneDue(stack)
  // The very same base fee: an offer by it would be the same as the one before.
  await whileRunning(keeper(), () => until('the next one is settled', () => stack.isSettled([second])))
  const [after] = await transactionsOf(stack, [second])
  expect(after?.nonce).toBe(before?.nonce)
  // The first batch was closed by hand before it was final: its transaction still counts as mined.
  const breaches = await findBreaches(stack.database)
  expect(breaches.filter((breach) => !breach.includes('two mined transactions'))).toEqual([])
})

describe('gas that costs too much: payments wait, and say why', () => {
  beforeEach(async () => {
    await giveUpAll(stack.database)
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

  test('behavior: dearer than ten times its fee, a payment waits, says why, opens no batch, and goes on by itself', async () => {
    const payments = await queueDue(stack, 2)
    const [nonce, batches] = [await nonceOf(), await countBatches()]
    let offset = 0
    const now = () => new Date(Date.now() + offset)
    const dear = stack.keeper({ settings: { ...settings(), gasTokenUsd: 1_000_000_000_000n }, now })
    await whileRunning(dear, async () => {
      await areHeld(payments, 'gas_cost')
      // Looked at again and again, it never says anything else meanwhile.
      const seen = new Set<string | null>()
      for (let looks = 1; looks <= 3; looks++) {
        offset = looks * 16_000
        await until('it was looked at', async () => {
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

  test('behavior: about to expire, what its fee lacks is added up to the day’s budget, and not beyond', async () => {
    const [buyer] = await stack.buyers(1, 100_000n)
    const queueUrgent = () => stack.queue({ buyer, price: 50_000n, validFor: 200, acceptedAt: hourAgo() })
    const payments = [await queueUrgent()]
    const [nonce, batches] = [await nonceOf(), await countBatches()]
    const dear = { ...settings(), gasTokenUsd: 1_000_000_000_000n }
    const poor = stack.keeper({ settings: { ...dear, dailyBudget: 1n } })
    await whileRunning(poor, () => areHeld(payments, 'gas_budget'))
    expect([await nonceOf(), await countBatches()]).toEqual([nonce, batches])
    // One that its fee carries isn't held up by that.
    const carried = await queueDue(stack, 1)
    const cheap = { ...settings(), gasTokenUsd: 1_000n, dailyBudget: 1n }
    await settleAll(stack, carried, { settings: cheap })
    const rich = stack.keeper({ settings: { ...dear, dailyBudget: 10n ** 12n } })
    const more = [await queueUrgent()]
    await whileRunning(rich, () => until('it is settled', () => stack.isSettled(more)))
  })

  test('behavior: a base fee over the cap: nothing is sent, the network says so, and no payment is blamed', async () => {
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

/** How often a keeper has held something back for this reason. */
async function holdsOf(keeper: Keeper, reason: string): Promise<number> {
  const metrics = await (await keeper.app.request('/metrics')).text()
  const line = new RegExp(`^tollkeeper_settlement_holds_total\\{.*reason="${reason}"\\} (\\d+)$`, 'm')
  return Number(line.exec(metrics)?.[1] ?? 0)
}
