import { type GasPrices, shareGas, shareOf, strangers } from '@tollkeeper/chain/gasShares'
import type { Address } from 'viem'
import { expect, test } from 'vitest'
import { type CeilingOptions, createCeiling, type Draw, type Spender } from './ceiling.ts'

const gwei = 1_000_000_000n
const now = new Date('2026-11-23T12:00:00Z')
const seconds = BigInt(now.getTime() / 1000)
const payee: Address = `0x${'11'.repeat(20)}`

/** Prices at 3,000 USD an ether. */
function pricesAt(wei: bigint): GasPrices {
  return { baseFeePerGas: wei, expected: wei, most: 2n * wei, dataFee: 0n, usdPerToken: 3_000_000_000n }
}

function open(
  prices: GasPrices,
  {
    budget = 0n,
    allowance = 0n,
    ...options
  }: { budget?: bigint; allowance?: bigint } & Partial<CeilingOptions> = {},
) {
  const left = { budget, allowance }
  const draws: Draw[] = []
  const ceiling = createCeiling({
    meter: { read: async () => prices },
    settings: { maxFeePerGas: 100n * gwei, gasPerFee: 10n },
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
    bears: 'what fees lack',
    now: () => now,
    ...options,
  })
  return { ceiling, draws }
}

const spender = (change: Partial<Spender> = {}): Spender => ({
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
const many = (count: number, change: Partial<Spender>) => Array.from({ length: count }, () => spender(change))
const countOf = (reasons: readonly unknown[]) =>
  Object.fromEntries(
    [...Map.groupBy(reasons, (reason) => `${reason}`)].map(([reason, all]) => [reason, all.length]),
  )
const halfCent = { fee: 500n }
const halfDollar = { fee: 25_000n }

test('default: shares come to what the batch costs, and each that leaves makes it dearer for the others', () => {
  const prices = pricesAt(gwei)
  const entries = [spender(), spender(), spender({ isPair: false, recipient: `0x${'22'.repeat(20)}` })]
  const shares = shareGas(entries, prices)
  const sum = shares.reduce((total, { expected }) => total + expected, 0n)
  // The model's gas for a batch of this shape, at 3 millionths of a dollar a unit.
  expect(Number(sum) / 3).toBeCloseTo(332_400, -2)
  const [first] = shareGas(entries.slice(0, 2), prices)
  expect(first?.expected).toBeGreaterThan(shares[0]?.expected ?? 0n)
})

test('behavior: 190 payments of half a cent at 0.03 gwei hold up none of ten of half a dollar', async () => {
  const { ceiling } = open(pricesAt(30_000_000n))
  const reasons = await ceiling.judge([...many(190, halfCent), ...many(10, halfDollar)], { isWhole: false })
  expect(reasons.slice(190)).toEqual(Array.from({ length: 10 }, () => null))
  expect(countOf(reasons.slice(0, 190))).toEqual({ gas_cost: 190 })
})

test('behavior: what each could not carry alone, many carry together; and who leaves may take others along', async () => {
  // Alone it takes 169,200 units, for half a cent of fees times ten; of two, each bears 30,000 less, and half of its payee.
  const { ceiling } = open(pricesAt(10_000_000n), { budget: 10n ** 9n })
  const judge = (count: number) => ceiling.judge(many(count, halfCent), { isWhole: false })
  expect(await judge(1)).toEqual(['gas_cost'])
  expect(await judge(2)).toEqual([null, null])
  const company = [spender(halfCent), spender({ fee: 100n })]
  expect(await ceiling.judge(company, { isWhole: false })).toEqual(['gas_cost', 'gas_cost'])
})

test('behavior: a wallet with code pays for what it may burn, and only itself waits for that', async () => {
  const { ceiling } = open(pricesAt(10_000_000n), { budget: 10n ** 9n })
  const contract = spender({ ...halfCent, hasCode: true })
  expect(await ceiling.judge([contract, ...many(20, halfCent)], { isWhole: false })).toEqual([
    'gas_cost',
    ...Array.from({ length: 20 }, () => null),
  ])
})

test('behavior: about to expire, what a fee lacks is added while the budget lasts; who carries its gas never needs it', async () => {
  const urgent = { ...halfCent, urgentAt: seconds }
  // Together with the ten that pay.
  const share = shareOf(spender(urgent), strangers(11), pricesAt(30_000_000n))
  const lack = share.expected - 500n
  const { ceiling, draws } = open(pricesAt(30_000_000n), { budget: 3n * lack })
  const reasons = await ceiling.judge([...many(5, urgent), ...many(10, halfDollar)], { isWhole: false })
  expect(countOf(reasons)).toMatchObject({ null: 13, gas_budget: 2 })
  expect(draws.every(({ fromBudget }) => fromBudget)).toBe(true)
  const none = open(pricesAt(30_000_000n))
  expect(countOf(await none.ceiling.judge(many(10, halfDollar), { isWhole: false }))).toEqual({ null: 10 })
})

test('behavior: one that runs out takes nobody along whose fee is as small', async () => {
  const { ceiling } = open(pricesAt(30_000_000n), { budget: 10n ** 9n })
  const urgent = spender({ ...halfCent, urgentAt: seconds })
  const [first, ...others] = await ceiling.judge([urgent, ...many(20, halfCent)], { isWhole: false })
  expect([first, countOf(others)]).toEqual([null, { gas_cost: 20 }])
})

test('behavior: whatever a fee lacks of its gas is the budget’s, so who pays a tenth of it spends no more than that a day', async () => {
  const tenth = { fee: 300n }
  const prices = pricesAt(10_000_000n)
  const shares = shareGas([...many(20, tenth), ...many(5, halfDollar)], prices)
  const lack = (shares[0]?.expected ?? 0n) - 300n
  expect(lack).toBeGreaterThan(300n)
  const { ceiling, draws } = open(prices, { budget: 7n * lack })
  const reasons = await ceiling.judge([...many(20, tenth), ...many(5, halfDollar)], { isWhole: false })
  expect(countOf(reasons.slice(0, 20))).toEqual({ null: 7, gas_budget: 13 })
  expect(countOf(reasons.slice(20))).toEqual({ null: 5 })
  expect(draws.reduce((sum, { amount }) => sum + amount, 0n)).toBe(7n * lack)
})

test('behavior: what pays no fee has what is reserved for it, or draws; never from the budget', async () => {
  const prices = pricesAt(10_000_000n)
  const free = { isPair: false, fee: 0n, isSold: false }
  const [share] = shareGas(many(2, free), prices)
  const { ceiling, draws } = open(prices, { budget: 1_000_000n })
  const [covered, other] = [spender({ ...free, gasLeft: share?.most ?? 0n }), spender(free)]
  expect(await ceiling.judge([covered, ...many(1, halfDollar)], { isWhole: false })).toEqual([null, null])
  expect(await ceiling.judge([other, ...many(1, halfDollar)], { isWhole: false })).toEqual([
    'gas_allowance',
    null,
  ])
  expect(draws).toEqual([])
})

test('behavior: a fee that can’t be settled any more doesn’t carry; its provider isn’t made to wait for that', async () => {
  const lost = spender({ isPair: false, fee: 0n, hasLostFee: true })
  const prices = pricesAt(10_000_000n)
  const { ceiling, draws } = open(prices, { budget: 1_000_000n })
  expect(await ceiling.judge([lost], { isWhole: false })).toEqual([null])
  expect(draws).toMatchObject([{ fromBudget: true }])
  expect(await open(prices).ceiling.judge([lost], { isWhole: false })).toEqual(['gas_budget'])
})

test('behavior: what was submitted together pays together', async () => {
  const { ceiling } = open(pricesAt(10_000_000n))
  const submitted = [spender({ fee: 0n, isSold: false }), spender({ fee: 25_000n, isSold: false })]
  expect(await ceiling.judge(submitted, { isWhole: true })).toEqual([null, null])
  expect(await ceiling.judge(submitted.slice(0, 1), { isWhole: true })).toEqual(['gas_allowance'])
})

test('behavior: over the cap of the price nothing goes, and no limit lets everything that pays go', async () => {
  const dear = open(pricesAt(101n * gwei), { budget: 10n ** 12n })
  expect(await dear.ceiling.isTooDear()).toBe(true)
  expect(await dear.ceiling.judge(many(2, halfDollar), { isWhole: false })).toEqual([
    'gas_price',
    'gas_price',
  ])
  const free = open(pricesAt(99n * gwei), { settings: { maxFeePerGas: 100n * gwei, gasPerFee: 0n } })
  expect(await free.ceiling.judge(many(1, halfCent), { isWhole: false })).toEqual([null])
})

test('behavior: a stranger’s budget bears all that it settles, and is never exceeded', async () => {
  const prices = pricesAt(30_000_000n)
  const [share] = shareGas(many(3, halfDollar), prices)
  const { ceiling } = open(prices, { bears: 'all', budget: 2n * (share?.expected ?? 0n) })
  expect(countOf(await ceiling.judge(many(3, halfDollar), { isWhole: false }))).toMatchObject({
    null: 2,
    gas_budget: 1,
  })
})

test('behavior: what fees don’t carry of the gas of sweeps is the budget’s, while that lasts', async () => {
  const prices = pricesAt(10_000_000n)
  const payers = many(10, { isPair: false, fee: 2_500n })
  const shares = shareGas(payers, prices).reduce((sum, { expected }) => sum + expected, 0n)
  const [left, unit] = [25_000n - shares, 30_000_000n]
  // At 0.03 USD a million units.
  const gas = ((left + 100n) * 1_000_000n) / (unit / 1_000n)
  const carries = (budget: bigint) => open(prices, { budget }).ceiling.carries(payers, gas)
  expect(await carries(99n)).toBe(false)
  expect(await carries(100n)).toBe(true)
})

test('behavior: a stranger’s budget bears all gas of sweeps, also without a limit by fees', async () => {
  const prices = pricesAt(10_000_000n)
  const settings = { maxFeePerGas: 100n * gwei, gasPerFee: 0n }
  // At 0.03 USD a million units.
  const carries = (budget: bigint) =>
    open(prices, { settings, bears: 'all', budget }).ceiling.carries(many(10, halfDollar), 1_000_000n)
  expect(await carries(29_999n)).toBe(false)
  expect(await carries(30_000n)).toBe(true)
})
