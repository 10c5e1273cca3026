import { parseEther } from 'viem'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { CheckpointName } from '#keeper/settings/checkpoints'
import { closeBatch, readMinedBatches } from '#ledger/batches/batches'
import {
  attemptsOf,
  expectUnharmed,
  queueDue,
  queueOneDue,
  raiseBaseFee,
  testClient,
  transactionsOf,
  untilRecorded,
  whileRunning,
} from '../support/keeperScenes.ts'
import { type KeeperStack, startKeeperStack, walletAccount } from '../support/keeperStack.ts'
import { findBreaches } from '../support/ledger.ts'
import { giveUp, giveUpAll } from '../support/standing.ts'
import { until } from '../support/until.ts'

// What a wallet's transactions may meet with that is nobody's payment's fault.

let stack: KeeperStack
beforeAll(async () => {
  stack = await startKeeperStack({ rebroadcastAfterMs: 300, replaceAfterMs: 1_500 })
})
afterAll(() => stack?.close())

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

  test('behavior: the wallet pauses, its payments go to another one, and it goes on when it has money (KEEPER 8)', async () => {
    const payments = await queueDue(stack, 2)
    await whileRunning(stack.keeper({ checkpoint: drainOnce(3), accounts: [walletAccount(3)] }), async () => {
      await until('the wallet is paused', async () => (await pausedFor(3)) === 'insufficient_gas_funds')
      await until('its batch is let go', async () => {
        return (await transactionsOf(stack, payments)).every(({ outcome }) => outcome === 'released')
      })
      // Another keeper has a wallet with money.
      await whileRunning(stack.keeper({ accounts: [walletAccount(4)] }), () =>
        until('they are settled', () => stack.isSettled(payments)),
      )
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
    if (!buyer) throw new Error('no buyer')
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
  expect(await findBreaches(stack.database)).toEqual([])
})

describe('gas that costs too much: payments wait, and say why', () => {
  beforeEach(async () => {
    await giveUpAll(stack.database)
    await raiseBaseFee(stack)
  })

  const nonceOf = () => stack.served.client.getTransactionCount({ address: walletAccount(0).address })
  const settings = () => ({ ...stack.settings, gasPerFee: 10n })
  const holds = () => stack.database<{ reason: string }[]>`
    select distinct reason from settlement_hold where held_until > now()`

  test('behavior: dearer than ten times its fees, payments wait, say why, and go on by themselves', async () => {
    const payments = await queueDue(stack, 2)
    const nonce = await nonceOf()
    let offset = 0
    const dear = stack.keeper({
      settings: { ...settings(), gasTokenUsd: 1_000_000_000_000n },
      now: () => new Date(Date.now() + offset),
    })
    await whileRunning(dear, () => until('they are held', async () => (await holds()).length > 0))
    expect([...(await holds())]).toEqual([{ reason: 'gas_cost' }])
    expect(await nonceOf()).toBe(nonce)
    const metrics = await (await dear.app.request('/metrics')).text()
    expect(metrics).toContain('tollkeeper_settlement_holds_total{network="localhost",reason="gas_cost"}')
    expect(await attemptsOf(stack, payments)).toEqual([0])

    // Gas is cheap again.
    offset = 16_000
    await whileRunning(
      stack.keeper({
        settings: { ...settings(), gasTokenUsd: 1_000n },
        now: () => new Date(Date.now() + offset),
      }),
      () => until('they are settled', () => stack.isSettled(payments)),
    )
  })

  test('behavior: beyond the day’s budget nothing is sent', async () => {
    await queueDue(stack, 1)
    const nonce = await nonceOf()
    const poor = stack.keeper({ settings: { ...stack.settings, dailyBudget: 1n } })
    await whileRunning(poor, () =>
      until('it is held', async () => (await holds()).some(({ reason }) => reason === 'gas_budget')),
    )
    expect(await nonceOf()).toBe(nonce)
  })

  test('behavior: a base fee over the cap: nothing is sent', async () => {
    await queueDue(stack, 1)
    const nonce = await nonceOf()
    const capped = stack.keeper({ settings: { ...stack.settings, maxFeePerGas: 1n } })
    await whileRunning(capped, () =>
      until('it is held', async () => (await holds()).some(({ reason }) => reason === 'gas_price')),
    )
    expect(await nonceOf()).toBe(nonce)
  })
})
