/**
 * Measures the gas of settling on the real USDC in four ways: the floor (the same authorizations in one transaction without any other
 * code), BatchSettlement, Multicall3.aggregate3, and two transactions per payment.
 */

import { alignColumns } from '@tollkeeper/runtime/alignColumns'
import { size } from 'viem'
import { contracts } from '../apps/devstack/chain/contracts.ts'
import { startLocalChain } from '../apps/devstack/chain/startLocalChain.ts'
import type { Buyer } from './data/signPayments.ts'
import {
  addressOf,
  type Bench,
  type BySize,
  type Call,
  createBench,
  largest,
  type Payment,
  transactionGasCap,
} from './support/gasBench.ts'
import { measureSplitters } from './support/gasSplitter.ts'
import { atLeast, atMost, type Goals } from './support/goals.ts'
import { mapValues, round2 } from './support/statistics.ts'

const sizes = [1, 10, 50, 100, 150] as const
/** Sizes for which percentages are reported. In smaller batches, the transaction's base cost dominates. */
const comparedSizes = [50, 100, 150] as const
const baseGas = 21_000

type Scenario = Awaited<ReturnType<typeof measureScenario>>

export const options = { 'gas-price': 0.001, 'eth-usd': 3_000 }

const scenarioFigures = [
  'floor',
  'ours',
  'multicall3',
  'individual',
  'overFloorPct',
  'belowMulticall3Pct',
  'belowIndividualPct',
]

export const figures = () => [
  ...scenarioFigures.map((figure) => `differentBuyers.${figure}`),
  ...scenarioFigures.map((figure) => `oneBuyer.${figure}`),
  'lostRace100',
  'gas150NewProviders',
  'bytecodeSize',
  'splitter',
  'splitterAllSwept',
  'splitterFirstTime',
  'oneSignatureBelowTwoPct',
]

export const goals = (): Goals => ({
  'differentBuyers.overFloorPct.100': atMost(6),
  'differentBuyers.belowIndividualPct.100': atLeast(45),
  oneSignatureBelowTwoPct: atLeast(40),
  gas150NewProviders: atMost(Number(transactionGasCap)),
})

export async function run() {
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  const bench = await createBench(chain)
  const { provider, buyers, pay } = bench
  const different = buyers.map((account, i) => pay(account, provider, `different ${i}`))
  const one = buyers.map((_, i) => pay(buyers[0] as Buyer, provider, `one ${i}`))
  const fresh = buyers.map((account, i) => pay(account, addressOf(`new provider ${i}`), `fresh ${i}`))
  return {
    differentBuyers: await measureScenario(bench, different),
    oneBuyer: await measureScenario(bench, one),
    /** Gas of a whole batch of 100 that another keeper settled first. */
    lostRace100: await bench.isolated(async () => {
      const batch = bench.settle(different.slice(0, 100))
      await bench.gasOf(batch, 200)
      return bench.gasOf(batch, 0)
    }),
    /** Gas of a whole batch of 150 payments whose providers never had USDC before. */
    gas150NewProviders: await bench.isolated(() => bench.gasOf(bench.settle(fresh), 2 * largest)),
    bytecodeSize: size(contracts.batchSettlement.runtimeCode),
    ...(await measureSplitters(bench)),
  }
}

async function measureScenario(bench: Bench, all: readonly Payment[]) {
  const gasOf = (call: Call, authorizations: number) =>
    bench.isolated(() => bench.gasOf(call, authorizations))
  const [ours, multicall3]: [BySize, BySize] = [{}, {}]
  for (const n of sizes) {
    const payments = all.slice(0, n)
    ours[n] = (await gasOf(bench.settle(payments), 2 * n)) / n
    multicall3[n] = (await gasOf(bench.multicall(payments), 2 * n)) / n
  }
  const floor = ((await bench.floorOf(all.slice(0, 100))) + baseGas) / 100
  // All transactions cost the same except for a few bytes of calldata, so ten are enough for the average.
  const individual = await bench.isolated(async () => {
    let total = 0
    for (const transfer of bench.transfers(all.slice(0, 10))) total += await bench.gasOf(transfer, 1)
    return total / 10
  })
  const compare = (share: (n: number) => number): BySize =>
    Object.fromEntries(comparedSizes.map((n) => [n, round2(share(n) * 100)]))
  return {
    /** Gas per payment in a batch of 100. */
    floor: Math.round(floor),
    ours: mapValues(ours, Math.round),
    multicall3: mapValues(multicall3, Math.round),
    individual: Math.round(individual),
    overFloorPct: compare((n) => (ours[n] as number) / floor - 1),
    belowMulticall3Pct: compare((n) => 1 - (ours[n] as number) / (multicall3[n] as number)),
    belowIndividualPct: compare((n) => 1 - (ours[n] as number) / individual),
  }
}

/** The reference figures of conformance 8.2-6: the gas cost of a batch in USD. */
const referenceUsd: BySize = { 10: 0.005, 50: 0.01, 100: 0.01 }

export function format(report: Awaited<ReturnType<typeof run>>, of: typeof options): string {
  const [gasPriceGwei, ethUsd] = [of['gas-price'], of['eth-usd']]
  const digits = (gas: number | undefined) => gas?.toLocaleString('en-US') ?? ''
  const table = (title: string, rows: [name: string, cell: (n: number) => string | undefined][]) => [
    ...alignColumns(
      [title.padEnd(28), ...sizes.map((n) => `N = ${n}`.padStart(9))],
      rows.map(([name, cell]) => [`  ${name}`, ...sizes.map((n) => cell(n) ?? '')]),
    ),
    '',
  ]
  const scenario = (title: string, { floor, individual, ...gas }: Scenario) =>
    table(`gas per payment, ${title}`, [
      ['floor (of 100)', (n) => (n === 100 ? digits(floor) : '')],
      ['BatchSettlement', (n) => digits(gas.ours[n])],
      ['Multicall3.aggregate3', (n) => digits(gas.multicall3[n])],
      ['two transactions', () => digits(individual)],
      ['over the floor, %', (n) => gas.overFloorPct[n]?.toFixed(2)],
      ['below Multicall3, %', (n) => gas.belowMulticall3Pct[n]?.toFixed(2)],
      ['below two transactions, %', (n) => gas.belowIndividualPct[n]?.toFixed(2)],
    ])
  const usdOf = (n: number) => ((report.differentBuyers.ours[n] ?? 0) * n * gasPriceGwei * ethUsd) / 1e9
  const bySplitters = Object.entries(report.splitter).map(([count, gas]) => `${digits(gas)} (${count})`)
  return [
    ...scenario('different buyers', report.differentBuyers),
    ...scenario('one buyer', report.oneBuyer),
    ...table('USD per batch *', [
      ['BatchSettlement', (n) => usdOf(n).toFixed(4)],
      ['for reference, about', (n) => referenceUsd[n]?.toFixed(4)],
    ]),
    `a lost race of 100: ${digits(report.lostRace100)}`,
    `gas of a batch with payments to 150 new providers: ${digits(report.gas150NewProviders)}, limit ${digits(Number(transactionGasCap))}`,
    `100 of one signature, by splitters: ${bySplitters.join(', ')}`,
    `  first time: ${Object.values(report.splitterFirstTime).map(digits).join(', ')}`,
    `  below two signatures: ${report.oneSignatureBelowTwoPct}%`,
    `bytes of code: ${digits(report.bytecodeSize)}`,
    '',
    `* at ${gasPriceGwei} gwei and ${ethUsd} USD per ETH (--gas-price, --eth-usd), without the L1 data fee of an L2`,
  ].join('\n')
}
