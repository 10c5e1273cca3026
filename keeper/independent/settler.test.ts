import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter, shareGas } from '@tollkeeper/chain/gasShares'
import { createPayerCode } from '@tollkeeper/chain/payerCode'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { createLogger } from '@tollkeeper/runtime/log'
import { type Address, createTestClient, http } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { describe, expect, onTestFinished, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { keeperDefaults } from '../../test/support/keeperDefaults.ts'
import { seedPlatform } from '../../test/support/seedPayments.ts'
import { shareServedChain } from '../../test/support/servedChain.ts'
import { randomHex, readBalance, signAuthorization, validFor } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { type Budget, createBudget } from './budget.ts'
import { createSettler } from './settler.ts'

// The tests run on a real chain with the real USDC. Each test provides the queue that a gateway would publish.

const { chain, served } = await shareServedChain()
const settings = {
  ...keeperDefaults.settings,
  ...gasLimitsOf(served.network, { maxFeePerGas: null }),
  priorityFeePerGas: 0n,
}
const now = () => new Date()

/** Signs a payment of two authorizations, and gives its buyer enough USDC. By default, the buyer is a new account. */
async function publishPayment(
  payee: Address,
  buyer = privateKeyToAccount(generatePrivateKey()),
): Promise<BatchItem> {
  await chain.mintUsdc([buyer.address], 50_000n)
  const window = validFor(3_600)
  const sign = (to: Address, value: bigint) =>
    signAuthorization(served, buyer, {
      from: buyer.address.toLowerCase() as Address,
      to,
      value,
      ...window,
      nonce: randomHex(32),
    })
  return {
    position: 0,
    paymentId: null,
    provider: { authorization: await sign(payee, 47_500n), state: 'open' },
    fee: { authorization: await sign(seedPlatform, 2_500n), state: 'open' },
  }
}

function openSettler(
  budget: Budget,
  dailyBudget: bigint,
  items: BatchItem[],
  index = 15,
  metrics = createMetrics(),
  {
    trigger = 'count',
    clock = now,
    inFlight,
  }: { trigger?: 'count' | 'high_value'; clock?: () => Date; inFlight?: Set<string> } = {},
) {
  const account = devAccount(index)
  return createSettler({
    served,
    wallet: {
      address: account.address.toLowerCase() as Address,
      sign: (transaction) => account.signTransaction({ ...transaction, type: 'eip1559' }),
    },
    settings: { ...settings, dailyBudget },
    budget,
    payersWithCode: createPayerCode(served.client, now),
    ...(inFlight && { inFlight }),
    readPending: async () => [{ feeRecipient: seedPlatform, trigger, items }],
    now: clock,
    randomBytes32: () => randomHex(32),
    log: createLogger('test', 'silent'),
    metrics,
  })
}

/** Returns the expected cost of a batch of one payment, in USDC base units. */
async function expectedCost(recipient: Address): Promise<bigint> {
  const prices = await createGasMeter(served, settings, now).read()
  const [share] = shareGas([{ isPair: true, recipient, hasCode: false }], prices)
  return share?.expected ?? 0n
}

test('default: settles published payments within the day’s budget, and books the cost', async () => {
  const payee = randomHex(20)
  const items = [await publishPayment(payee)]
  const budget = createBudget(now)
  const settler = openSettler(budget, 2n * (await expectedCost(payee)), items)
  expect(await settler.step()).toBe('busy')
  expect(await settler.step()).toBe('busy')
  expect(await readBalance(served.client, served.token, payee)).toBe(47_500n)
  const { spent, ...report } = settler.report()
  expect(report).toEqual({ batches: 1, payments: 1, earned: 0n, stillOut: [] })
  expect(spent).toBeGreaterThan(0n)
  expect(budget.spentToday()).toBe(spent)
})

test('behavior: sends nothing that exceeds the day’s budget, even if fees would cover it', async () => {
  const payee = randomHex(20)
  const items = [await publishPayment(payee)]
  const dailyBudget = 2n * (await expectedCost(payee))
  const budget = createBudget(now)
  budget.openAccount().book({ cost: dailyBudget, reward: 0n })
  const settler = openSettler(budget, dailyBudget, items)
  expect(await settler.step()).toBe('idle')
  expect(settler.report()).toMatchObject({ batches: 0, stillOut: [] })
})

test('behavior: wallets with transactions in flight at the same time never exceed the budget together', async () => {
  const node = createTestClient({ mode: 'hardhat', transport: http(chain.url) })
  const payee = randomHex(20)
  const published = [await publishPayment(payee), await publishPayment(payee)]
  const dailyBudget = ((await expectedCost(payee)) * 3n) / 2n
  const budget = createBudget(now)
  const [first, second] = published.map((item, index) =>
    openSettler(budget, dailyBudget, [item], 15 + index),
  ) as [ReturnType<typeof openSettler>, ReturnType<typeof openSettler>]
  await node.setAutomine(false)
  onTestFinished(() => node.setAutomine(true))
  expect(await first.step()).toBe('busy')
  expect(first.report().stillOut).toHaveLength(1)
  expect(await second.step()).toBe('idle')
  expect(second.report().stillOut).toEqual([])
})

test('behavior: measures each wallet’s spending on gas by the change of the wallet’s balance, starting from 0', async () => {
  const payee = randomHex(20)
  const metrics = createMetrics()
  const { address } = devAccount(14)
  const read = async (name: 'spentEther' | 'walletBalance' | 'signerFailures') =>
    (await metrics[name].get()).values.map(({ value }) => value)
  const before = await served.client.getBalance({ address })
  const items = [await publishPayment(payee)]
  const settler = openSettler(createBudget(now), 2n * (await expectedCost(payee)), items, 14, metrics)
  expect(await settler.step()).toBe('busy')
  // Nothing is mined yet, but the counters exist, so Prometheus has a first value from which to count.
  expect([await read('spentEther'), await read('signerFailures')]).toEqual([[0], [0]])
  expect((await read('walletBalance'))[0]).toBeCloseTo(Number(before) / 1e18, 6)
  await settler.step()
  const spent = before - (await served.client.getBalance({ address }))
  expect(spent).toBeGreaterThan(0n)
  expect((await read('spentEther'))[0]).toBeCloseTo(Number(spent) / 1e18, 15)
})

describe('a settler with several transactions in flight', () => {
  const node = createTestClient({ mode: 'hardhat', transport: http(chain.url) })
  const { address } = devAccount(13)
  /** Opens a settler of payments of high value, which each settle in a separate transaction. */
  const openLarge = (items: BatchItem[], dailyBudget = 10n ** 12n, clock = now) =>
    openSettler(createBudget(now), dailyBudget, items, 13, createMetrics(), { trigger: 'high_value', clock })

  async function withoutMining(): Promise<void> {
    await node.setAutomine(false)
    onTestFinished(async () => {
      await node.setAutomine(true)
      await node.mine({ blocks: 1 })
    })
  }

  /** Runs steps until the settler is idle. */
  async function stepUntilIdle(settler: ReturnType<typeof openSettler>): Promise<void> {
    while ((await settler.step()) === 'busy');
  }

  test('settles payments of high value in one block, each in a separate transaction', async () => {
    const payee = randomHex(20)
    const items = await Promise.all([1, 2, 3].map(() => publishPayment(payee)))
    const settler = openLarge(items)
    await withoutMining()
    const nonce = await served.client.getTransactionCount({ address })
    await stepUntilIdle(settler)
    expect(settler.report().stillOut).toHaveLength(3)
    await node.mine({ blocks: 1 })
    expect(await served.client.getTransactionCount({ address })).toBe(nonce + 3)
    await stepUntilIdle(settler)
    expect(settler.report()).toMatchObject({ batches: 3, payments: 3, stillOut: [] })
    expect(await readBalance(served.client, served.token, payee)).toBe(142_500n)
  })

  test('settles nothing that another wallet of the keeper has in flight', async () => {
    const payee = randomHex(20)
    const items = await Promise.all([1, 2, 3].map(() => publishPayment(payee)))
    const inFlight = new Set<string>()
    const open = (wallet: number) =>
      openSettler(createBudget(now), 10n ** 12n, items, wallet, createMetrics(), {
        trigger: 'high_value',
        inFlight,
      })
    const [one, other] = [open(13), open(12)]
    await withoutMining()
    await Promise.all([stepUntilIdle(one), stepUntilIdle(other)])
    expect([...one.report().stillOut, ...other.report().stillOut]).toHaveLength(3)
    await node.mine({ blocks: 1 })
    await Promise.all([stepUntilIdle(one), stepUntilIdle(other)])
    expect(one.report().payments + other.report().payments).toBe(3)
    expect(inFlight.size).toBe(0)
  })

  test('reserves the cost of each transaction in the day’s budget, and starts none that exceeds it', async () => {
    const payee = randomHex(20)
    const items = await Promise.all([1, 2, 3].map(() => publishPayment(payee)))
    const settler = openLarge(items, ((await expectedCost(payee)) * 5n) / 2n)
    await withoutMining()
    await stepUntilIdle(settler)
    expect(settler.report().stillOut).toHaveLength(2)
  })

  test('raises the fee of a stuck transaction before it sends a transaction with the next nonce', async () => {
    const payee = randomHex(20)
    const items = await Promise.all([1, 2].map(() => publishPayment(payee)))
    let later = 0
    const clock = () => new Date(Date.now() + later)
    const published = items.slice(0, 1)
    const settler = openLarge(published, undefined, clock)
    await withoutMining()
    await stepUntilIdle(settler)
    const [first] = settler.report().stillOut
    later = settings.replaceAfterMs
    published.push(...items.slice(1))
    await stepUntilIdle(settler)
    expect(settler.report().stillOut).toHaveLength(2)
    expect(settler.report().stillOut).not.toContain(first)
    await node.mine({ blocks: 1 })
    await stepUntilIdle(settler)
    expect(settler.report()).toMatchObject({ batches: 2, stillOut: [] })
    expect(await readBalance(served.client, served.token, payee)).toBe(95_000n)
  })

  test('starts again from a nonce that a reorg has freed, and replans all transactions with later nonces', async () => {
    const payee = randomHex(20)
    const items = await Promise.all([1, 2, 3].map(() => publishPayment(payee)))
    let later = 0
    const published = items.slice(0, 1)
    const settler = openLarge(published, undefined, () => new Date(Date.now() + later))
    await withoutMining()
    const before = await node.snapshot()
    await stepUntilIdle(settler)
    await node.mine({ blocks: 1 })
    await stepUntilIdle(settler)
    published.splice(0, 1, ...items.slice(1))
    await stepUntilIdle(settler)
    expect(settler.report()).toMatchObject({ batches: 1 })
    expect(settler.report().stillOut).toHaveLength(2)

    // The reorg has undone the first payment, so its gateway publishes it again.
    await node.revert({ id: before })
    await node.setAutomine(false)
    published.unshift(...items.slice(0, 1))
    later = settings.replaceAfterMs
    await stepUntilIdle(settler)
    expect(settler.report().stillOut).toHaveLength(3)
    await node.mine({ blocks: 1 })
    await stepUntilIdle(settler)
    expect(await readBalance(served.client, served.token, payee)).toBe(142_500n)
    expect(settler.report().stillOut).toEqual([])
  })
})
