import { type GasPrices, shareGas, worstCaseShare } from '@tollkeeper/chain/gasShares'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { createGasControl } from './gasControl.ts'
import {
  createFeeCoveredPolicy,
  createFullCostPolicy,
  type GasDraw,
  type GasPolicy,
  type GasRequest,
} from './gasPolicy.ts'

const gwei = 1_000_000_000n
const now = new Date('2026-11-23T12:00:00Z')
const seconds = BigInt(now.getTime() / 1000)
const payee: Address = `0x${'11'.repeat(20)}`

/** Prices at 3,000 USD per ether. */
function pricesAt(wei: bigint): GasPrices {
  return { baseFeePerGas: wei, expected: wei, most: 2n * wei, dataFee: 0n, usdPerToken: 3_000_000_000n }
}

const limits = { maxFeePerGas: 100n * gwei, gasPerFee: 10n }

/** Creates a gas control with these prices, and records the draws that succeeded. */
function open(
  prices: GasPrices,
  {
    budget = 0n,
    allowance = 0n,
    policy = createFeeCoveredPolicy(limits),
  }: { budget?: bigint; allowance?: bigint; policy?: GasPolicy } = {},
) {
  const left = { budget, allowance }
  const draws: GasDraw[] = []
  const gas = createGasControl({
    meter: { read: async () => prices },
    policy,
    async draw(wanted) {
      return wanted.map((one) => {
        const from = one.fromBudget ? 'budget' : 'allowance'
        if (left[from] < one.amount) return false
        left[from] -= one.amount
        draws.push(one)
        return true
      })
    },
    drawForSweeps: async (amount) => amount <= left.budget,
    now: () => now,
  })
  return { gas, draws }
}

const request = (change: Partial<GasRequest> = {}): GasRequest => ({
  isPair: true,
  recipient: payee,
  hasCode: false,
  paymentId: null,
  urgentAt: seconds + 86_100n,
  fee: 2_500n,
  isSold: true,
  gasLeft: 0n,
  ...change,
})
const many = (count: number, change: Partial<GasRequest>) =>
  Array.from({ length: count }, () => request(change))
const countOf = (reasons: readonly unknown[]) =>
  Object.fromEntries(
    [...Map.groupBy(reasons, (reason) => `${reason}`)].map(([reason, all]) => [reason, all.length]),
  )
const halfCent = { fee: 500n }
const halfDollar = { fee: 25_000n }

test('default: the shares add up to the cost of the batch, and each payment that leaves raises the others’ shares', () => {
  const prices = pricesAt(gwei)
  const entries = [request(), request(), request({ isPair: false, recipient: `0x${'22'.repeat(20)}` })]
  const shares = shareGas(entries, prices)
  const sum = shares.reduce((total, { expected }) => total + expected, 0n)
  // The gas model's estimate for a batch of this shape, at $0.000003 per unit.
  expect(Number(sum) / 3).toBeCloseTo(332_400, -2)
  const [first] = shareGas(entries.slice(0, 2), prices)
  expect(first?.expected).toBeGreaterThan(shares[0]?.expected ?? 0n)
})

test('behavior: at 0.03 gwei, 190 payments of half a cent do not delay ten payments of half a dollar', async () => {
  const { gas } = open(pricesAt(30_000_000n))
  const reasons = await gas.approve([...many(190, halfCent), ...many(10, halfDollar)], { isWhole: false })
  expect(reasons.slice(190)).toEqual(Array.from({ length: 10 }, () => null))
  expect(countOf(reasons.slice(0, 190))).toEqual({ gas_cost: 190 })
})

test('behavior: payments that can’t cover their gas alone may cover it together; if one payment leaves, the others may no longer be covered', async () => {
  // A payment alone uses 169,200 units of gas, and its gas may cost at most ten times its fee of half a cent. If there are two payments, each
  // bears 30,000 units less, and only half of the gas for their common payee.
  const { gas } = open(pricesAt(10_000_000n), { budget: 10n ** 9n })
  const judge = (count: number) => gas.approve(many(count, halfCent), { isWhole: false })
  expect(await judge(1)).toEqual(['gas_cost'])
  expect(await judge(2)).toEqual([null, null])
  const requests = [request(halfCent), request({ fee: 100n })]
  expect(await gas.approve(requests, { isWhole: false })).toEqual(['gas_cost', 'gas_cost'])
})

test('behavior: a payer with code pays for the maximum gas that its code may burn, and only that payer’s payment waits until gas is cheap enough', async () => {
  const { gas } = open(pricesAt(10_000_000n), { budget: 10n ** 9n })
  const contract = request({ ...halfCent, hasCode: true })
  expect(await gas.approve([contract, ...many(20, halfCent)], { isWhole: false })).toEqual([
    'gas_cost',
    ...Array.from({ length: 20 }, () => null),
  ])
})

test('behavior: if fees don’t cover the gas of payments that expire soon, the budget pays the rest while it lasts; payments that cover their gas never draw from it', async () => {
  const urgent = { ...halfCent, urgentAt: seconds }
  // The payment's share of the gas in a batch with the ten payments that cover their gas.
  const share = worstCaseShare(request(urgent), 11, pricesAt(30_000_000n))
  const lack = share.expected - 500n
  const { gas, draws } = open(pricesAt(30_000_000n), { budget: 3n * lack })
  const reasons = await gas.approve([...many(5, urgent), ...many(10, halfDollar)], { isWhole: false })
  expect(countOf(reasons)).toMatchObject({ null: 13, gas_budget: 2 })
  expect(draws.every(({ fromBudget }) => fromBudget)).toBe(true)
  const none = open(pricesAt(30_000_000n))
  expect(countOf(await none.gas.approve(many(10, halfDollar), { isWhole: false }))).toEqual({ null: 10 })
})

test('behavior: if a payment with a small fee is sent because it expires soon, other payments with equally small fees are still held', async () => {
  const { gas } = open(pricesAt(30_000_000n), { budget: 10n ** 9n })
  const urgent = request({ ...halfCent, urgentAt: seconds })
  const [first, ...others] = await gas.approve([urgent, ...many(20, halfCent)], { isWhole: false })
  expect([first, countOf(others)]).toEqual([null, { gas_cost: 20 }])
})

test('behavior: payers whose fees cover only a tenth of their gas can use up the day’s budget, but not more', async () => {
  const tenth = { fee: 300n }
  const prices = pricesAt(10_000_000n)
  const shares = shareGas([...many(20, tenth), ...many(5, halfDollar)], prices)
  const lack = (shares[0]?.expected ?? 0n) - 300n
  expect(lack).toBeGreaterThan(300n)
  const { gas, draws } = open(prices, { budget: 7n * lack })
  const reasons = await gas.approve([...many(20, tenth), ...many(5, halfDollar)], { isWhole: false })
  expect(countOf(reasons.slice(0, 20))).toEqual({ null: 7, gas_budget: 13 })
  expect(countOf(reasons.slice(20))).toEqual({ null: 5 })
  expect(draws.reduce((sum, { amount }) => sum + amount, 0n)).toBe(7n * lack)
})

test('behavior: a payment without a fee uses its reservation or draws from an allowance, never from the budget', async () => {
  const prices = pricesAt(10_000_000n)
  const free = { isPair: false, fee: 0n, isSold: false }
  const [share] = shareGas(many(2, free), prices)
  const { gas, draws } = open(prices, { budget: 1_000_000n })
  const [covered, other] = [request({ ...free, gasLeft: share?.most ?? 0n }), request(free)]
  expect(await gas.approve([covered, ...many(1, halfDollar)], { isWhole: false })).toEqual([null, null])
  expect(await gas.approve([other, ...many(1, halfDollar)], { isWhole: false })).toEqual([
    'gas_allowance',
    null,
  ])
  expect(draws).toEqual([])
})

test('behavior: a payment whose fee can no longer settle draws its gas from the budget immediately, so that its provider doesn’t wait', async () => {
  const lost = request({ isPair: false, fee: 0n, hasLostFee: true })
  const prices = pricesAt(10_000_000n)
  const { gas, draws } = open(prices, { budget: 1_000_000n })
  expect(await gas.approve([lost], { isWhole: false })).toEqual([null])
  expect(draws).toMatchObject([{ fromBudget: true }])
  expect(await open(prices).gas.approve([lost], { isWhole: false })).toEqual(['gas_budget'])
})

test('behavior: the payments of a submission pay their gas together', async () => {
  const { gas } = open(pricesAt(10_000_000n))
  const submitted = [request({ fee: 0n, isSold: false }), request({ fee: 25_000n, isSold: false })]
  expect(await gas.approve(submitted, { isWhole: true })).toEqual([null, null])
  expect(await gas.approve(submitted.slice(0, 1), { isWhole: true })).toEqual(['gas_allowance'])
})

test('behavior: sends nothing above the maximum gas price; up to that price, sends every payment with a fee if `gasPerFee` is 0', async () => {
  const expensive = open(pricesAt(101n * gwei), { budget: 10n ** 12n })
  expect(await expensive.gas.approve(many(2, halfDollar), { isWhole: false })).toEqual([
    'gas_price',
    'gas_price',
  ])
  const free = open(pricesAt(99n * gwei), { policy: createFeeCoveredPolicy({ ...limits, gasPerFee: 0n }) })
  expect(await free.gas.approve(many(1, halfCent), { isWhole: false })).toEqual([null])
})

test('behavior: if `gasPerFee` is 0, approves sweeps at any cost and without reading prices', async () => {
  const gas = createGasControl({
    meter: { read: () => Promise.reject(new Error('no node answers')) },
    policy: createFeeCoveredPolicy({ ...limits, gasPerFee: 0n }),
    draw: async () => [],
    drawForSweeps: async () => false,
    now: () => now,
  })
  expect(await gas.approveSweeps(many(10, halfDollar), 1_000_000n)).toBe(true)
})

test('behavior: the budget of an independent keeper pays all gas of the payments that the keeper settles, and is never exceeded', async () => {
  const prices = pricesAt(30_000_000n)
  const [share] = shareGas(many(3, halfDollar), prices)
  const { gas } = open(prices, {
    policy: createFullCostPolicy(limits),
    budget: 2n * (share?.expected ?? 0n),
  })
  expect(countOf(await gas.approve(many(3, halfDollar), { isWhole: false }))).toMatchObject({
    null: 2,
    gas_budget: 1,
  })
})

test('behavior: if fees do not cover the gas of sweeps, the budget pays the rest while it lasts', async () => {
  const prices = pricesAt(10_000_000n)
  const payers = many(10, { isPair: false, fee: 2_500n })
  const shares = shareGas(payers, prices).reduce((sum, { expected }) => sum + expected, 0n)
  const [left, unit] = [25_000n - shares, 30_000_000n]
  // At 0.03 USD per million units.
  const gas = ((left + 100n) * 1_000_000n) / (unit / 1_000n)
  const carries = (budget: bigint) => open(prices, { budget }).gas.approveSweeps(payers, gas)
  expect(await carries(99n)).toBe(false)
  expect(await carries(100n)).toBe(true)
})

test('behavior: the budget of an independent keeper pays all gas of sweeps, even if `gasPerFee` is 0', async () => {
  const prices = pricesAt(10_000_000n)
  const policy = createFullCostPolicy({ ...limits, gasPerFee: 0n })
  // At 0.03 USD per million units.
  const isApproved = (budget: bigint) =>
    open(prices, { policy, budget }).gas.approveSweeps(many(10, halfDollar), 1_000_000n)
  expect(await isApproved(29_999n)).toBe(false)
  expect(await isApproved(30_000n)).toBe(true)
})

const policies = {
  'fees pay for gas': createFeeCoveredPolicy(limits),
  'fees pay for gas, without a limit': createFeeCoveredPolicy({ ...limits, gasPerFee: 0n }),
  'the budget pays for gas': createFullCostPolicy(limits),
  'the budget pays for gas, without a limit': createFullCostPolicy({ ...limits, gasPerFee: 0n }),
}
const shareOf = (expected: bigint) => ({ expected, most: 2n * expected })
const unsold = { isSold: false, gasLeft: 1_500n }
const due = { urgentAt: seconds }

test.each<[keyof typeof policies, Partial<GasRequest>, bigint, unknown]>([
  ['fees pay for gas', {}, 2_500n, { draw: null, isWorth: true, isDue: false }],
  ['fees pay for gas', {}, 25_000n, { draw: 22_500n, isWorth: true, isDue: false }],
  ['fees pay for gas', {}, 25_001n, { draw: 22_501n, isWorth: false, isDue: false }],
  ['fees pay for gas', due, 25_001n, { draw: 22_501n, isWorth: false, isDue: true }],
  ['fees pay for gas', { hasLostFee: true, fee: 0n }, 7n, { draw: 7n, isWorth: false, isDue: true }],
  ['fees pay for gas', unsold, 2_000n, { draw: null, isWorth: true, isDue: true }],
  ['fees pay for gas', { ...unsold, fee: 0n }, 1_001n, { draw: 1_502n, isWorth: false, isDue: true }],
  ['fees pay for gas, without a limit', {}, 10n ** 9n, { draw: null, isWorth: true, isDue: false }],
  ['fees pay for gas, without a limit', { fee: 0n }, 7n, { draw: 7n, isWorth: false, isDue: false }],
  ['the budget pays for gas', {}, 25_000n, { draw: 25_000n, isWorth: true, isDue: false }],
  ['the budget pays for gas', {}, 25_001n, { draw: 25_001n, isWorth: false, isDue: false }],
  ['the budget pays for gas', { reward: 25_001n }, 25_001n, { draw: null, isWorth: true, isDue: false }],
  [
    'the budget pays for gas',
    { ...due, reward: 1n },
    25_001n,
    { draw: 25_000n, isWorth: false, isDue: true },
  ],
  ['the budget pays for gas', unsold, 25_001n, { draw: 25_001n, isWorth: false, isDue: false }],
  ['the budget pays for gas, without a limit', { fee: 0n }, 7n, { draw: 7n, isWorth: true, isDue: false }],
])(
  'args: under the policy “%s”, judges a standard payment with the changes %o if its share of the gas costs %s',
  (name, change, expected, judgement) => {
    const policy = policies[name]
    const [asked, share] = [request(change), shareOf(expected)]
    expect({
      draw: policy.drawFor(asked, share)?.amount ?? null,
      isWorth: policy.isWorth(asked, share),
      isDue: policy.isDueAnyway(asked, now),
    }).toEqual(judgement)
  },
)

test.each<[keyof typeof policies, bigint, bigint | null]>([
  ['fees pay for gas', 40n, 0n],
  ['fees pay for gas', 60n, 10n],
  ['fees pay for gas', 951n, null],
  ['the budget pays for gas', 60n, 60n],
  ['the budget pays for gas', 951n, null],
  ['the budget pays for gas, without a limit', 951n, 951n],
])(
  'args: under the policy “%s”, if the fees are 100 and 50 of them are spent, sweeps that cost %s draw %s',
  (name, added, amount) => {
    expect(policies[name].drawForSweeps({ fees: 100n, spent: 50n, added })).toBe(amount)
  },
)
