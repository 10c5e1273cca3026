import { gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { createGasMeter, shareGas } from '@tollkeeper/chain/gasShares'
import { createPayerCode } from '@tollkeeper/chain/payerCode'
import type { BatchItem } from '@tollkeeper/ledger/batches/items'
import { createLogger } from '@tollkeeper/runtime/log'
import { type Address, createTestClient, http } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { expect, onTestFinished, test } from 'vitest'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { keeperDefaults } from '../../test/support/keeperDefaults.ts'
import { seedPlatform } from '../../test/support/seedPayments.ts'
import { shareServedChain } from '../../test/support/servedChain.ts'
import { randomHex, readBalance, signAuthorization, validFor } from '../../test/support/usdc.ts'
import { createMetrics } from '../settings/metrics.ts'
import { type Budget, createBudget } from './budget.ts'
import { createSettler } from './settler.ts'

// On a real chain with the real USDC. Each test provides the queue that a gateway would publish.

const { chain, served } = await shareServedChain()
const settings = {
  ...keeperDefaults.settings,
  ...gasLimitsOf(served.network, { maxFeePerGas: null }),
  priorityFeePerGas: 0n,
}
const now = () => new Date()

/** Signs a payment of two halves, by a new buyer who can pay it. */
async function publishPayment(payee: Address): Promise<BatchItem> {
  const buyer = privateKeyToAccount(generatePrivateKey())
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

function openSettler(budget: Budget, dailyBudget: bigint, items: BatchItem[], index = 15) {
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
    readPending: async () => [{ feeRecipient: seedPlatform, trigger: 'count', items }],
    now,
    randomBytes32: () => randomHex(32),
    log: createLogger('test', 'silent'),
    metrics: createMetrics(),
  })
}

/** Returns the expected cost of a batch of one payment, in USDC base units. */
async function expectedCost(recipient: Address): Promise<bigint> {
  const prices = await createGasMeter(served, settings, now).read()
  const [share] = shareGas([{ isPair: true, recipient, hasCode: false }], prices)
  return share?.expected ?? 0n
}

test('default: settles what is published within the day’s budget, and books what it cost', async () => {
  const payee = randomHex(20)
  const items = [await publishPayment(payee)]
  const budget = createBudget(now)
  const settler = openSettler(budget, 2n * (await expectedCost(payee)), items)
  expect(await settler.step()).toBe('busy')
  expect(await settler.step()).toBe('busy')
  expect(await readBalance(served.client, served.token, payee)).toBe(47_500n)
  const { spent, ...report } = settler.report()
  expect(report).toEqual({ batches: 1, payments: 1, earned: 0n, stillOut: null })
  expect(spent).toBeGreaterThan(0n)
  expect(budget.spentToday()).toBe(spent)
})

test('behavior: sends nothing that exceeds the day’s budget, although fees would carry it', async () => {
  const payee = randomHex(20)
  const items = [await publishPayment(payee)]
  const dailyBudget = 2n * (await expectedCost(payee))
  const budget = createBudget(now)
  budget.openAccount().book({ cost: dailyBudget, reward: 0n })
  const settler = openSettler(budget, dailyBudget, items)
  expect(await settler.step()).toBe('idle')
  expect(settler.report()).toMatchObject({ batches: 0, stillOut: null })
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
  expect(first.report().stillOut).not.toBeNull()
  expect(await second.step()).toBe('idle')
  expect(second.report().stillOut).toBeNull()
})
