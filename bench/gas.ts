/**
 * What settling costs on the real USDC, four ways side by side: the floor (the same authorizations executed inside one
 * transaction with nothing around them), BatchSettlement, Multicall3.aggregate3, and two transactions a payment.
 */
import { size } from 'viem'
import { contracts } from '../local/chain/contracts.ts'
import { type LocalChain, startLocalChain } from '../local/chain/startLocalChain.ts'
import {
  addressOf,
  type Bench,
  createBench,
  largest,
  type Payment,
  transactionGasCap,
} from './support/gasBench.ts'
import { measureSplitters, type SplitterReport } from './support/gasSplitter.ts'

const sizes = [1, 10, 50, 100, 150] as const
/** Percentages are reported from this size on; below it the transaction's base cost dominates. */
const comparedSizes = [50, 100, 150] as const
const baseGas = 21_000

type BySize = { [payments: number]: number }

type Scenario = {
  /** Gas a payment, of 100. */
  floor: number
  ours: BySize
  multicall3: BySize
  individual: number
  overFloorPct: BySize
  belowMulticall3Pct: BySize
  belowIndividualPct: BySize
}

type Report = {
  differentBuyers: Scenario
  oneBuyer: Scenario
  /** Gas of a whole batch of 100 that another keeper settled first. */
  lostRace100: number
  /** Gas of a whole batch of 150 payments whose providers never had USDC before. */
  gas150NewProviders: number
  bytecodeSize: number
} & SplitterReport

export const options = { 'gas-price': 0.001, 'eth-usd': 3_000 }

export async function run(): Promise<Report> {
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  return await measure(chain)
}

async function measure(chain: LocalChain): Promise<Report> {
  const bench = await createBench(chain)
  const { provider, buyers, pay } = bench
  const [buyer] = buyers
  if (buyer === undefined) throw new Error('no buyers')

  const different = buyers.map((account, i) => pay(account, provider, `different ${i}`))
  const one = buyers.map((_, i) => pay(buyer, provider, `one ${i}`))
  const fresh = buyers.map((account, i) => pay(account, addressOf(`new provider ${i}`), `fresh ${i}`))
  return {
    differentBuyers: await measureScenario(bench, different),
    oneBuyer: await measureScenario(bench, one),
    lostRace100: await bench.isolated(async () => {
      const batch = bench.settle(different.slice(0, 100))
      await bench.gasOf(batch, 200)
      return bench.gasOf(batch, 0)
    }),
    gas150NewProviders: await bench.isolated(() => bench.gasOf(bench.settle(fresh), 2 * largest)),
    bytecodeSize: size(contracts.batchSettlement.runtimeCode),
    ...(await measureSplitters(bench)),
  }
}

async function measureScenario(bench: Bench, all: readonly Payment[]): Promise<Scenario> {
  const ours: BySize = {}
  const multicall3: BySize = {}
  for (const n of sizes) {
    const payments = all.slice(0, n)
    ours[n] = (await bench.isolated(() => bench.gasOf(bench.settle(payments), 2 * n))) / n
    multicall3[n] = (await bench.isolated(() => bench.gasOf(bench.multicall(payments), 2 * n))) / n
  }
  const floor = ((await bench.floorOf(all.slice(0, 100))) + baseGas) / 100
  // Each costs the same but for a few bytes of calldata, so ten stand for all.
  const individual = await bench.isolated(async () => {
    let total = 0
    for (const payment of all.slice(0, 10)) {
      for (const half of [payment.authorization, payment.fee])
        total += await bench.gasOf(bench.transfer(half), 1)
    }
    return total / 10
  })
  const compare = (pct: (n: number) => number): BySize =>
    Object.fromEntries(comparedSizes.map((n) => [n, Math.round(pct(n) * 100) / 100]))
  const of = (gas: BySize, n: number) => gas[n] ?? Number.NaN
  return {
    floor: Math.round(floor),
    ours: round(ours),
    multicall3: round(multicall3),
    individual: Math.round(individual),
    overFloorPct: compare((n) => (of(ours, n) / floor - 1) * 100),
    belowMulticall3Pct: compare((n) => (1 - of(ours, n) / of(multicall3, n)) * 100),
    belowIndividualPct: compare((n) => (1 - of(ours, n) / individual) * 100),
  }
}

const round = (gas: BySize): BySize =>
  Object.fromEntries(Object.entries(gas).map(([n, value]) => [n, Math.round(value)]))

/** SPEC.md 8.2's reference figures: what a batch costs in gas, in USD. */
const referenceUsd: BySize = { 10: 0.005, 50: 0.01, 100: 0.01 }

export function format(report: Report, of: typeof options): string {
  const [gasPriceGwei, ethUsd] = [of['gas-price'], of['eth-usd']]
  const usdOf = (gas: number) => (gas * gasPriceGwei * ethUsd) / 1e9
  const row = (...cells: (string | number)[]) =>
    cells.map((cell, i) => (i === 0 ? String(cell).padEnd(26) : String(cell).padStart(14))).join('')
  const digits = (gas: number | undefined) => gas?.toLocaleString('en-US') ?? ''
  const percent = (pct: number | undefined) => (pct === undefined ? '' : `${pct.toFixed(2)} %`)

  const lines: string[] = []
  for (const [title, scenario] of [
    ['different buyers', report.differentBuyers],
    ['one buyer', report.oneBuyer],
  ] as const) {
    const line = (name: string, cell: (n: number) => string) => row(name, ...sizes.map(cell))
    lines.push(
      row(`gas a payment, ${title}`, ...sizes.map((n) => `N = ${n}`)),
      line('  floor (of 100)', (n) => (n === 100 ? digits(scenario.floor) : '')),
      line('  BatchSettlement', (n) => digits(scenario.ours[n])),
      line('  Multicall3.aggregate3', (n) => digits(scenario.multicall3[n])),
      line('  two transactions', () => digits(scenario.individual)),
      line('  over the floor', (n) => percent(scenario.overFloorPct[n])),
      line('  below Multicall3', (n) => percent(scenario.belowMulticall3Pct[n])),
      line('  below two transactions', (n) => percent(scenario.belowIndividualPct[n])),
      '',
    )
  }
  lines.push(
    row(`USD a batch *`, ...sizes.map((n) => `N = ${n}`)),
    row(
      '  BatchSettlement',
      ...sizes.map((n) => usdOf((report.differentBuyers.ours[n] ?? 0) * n).toFixed(4)),
    ),
    row('  SPEC.md 8.2, about', ...sizes.map((n) => referenceUsd[n]?.toFixed(4) ?? '')),
    '',
    row('a lost race of 100', digits(report.lostRace100)),
    row('150 new providers', digits(report.gas150NewProviders), `of ${digits(Number(transactionGasCap))}`),
    row(
      '100 of one signature',
      ...Object.entries(report.splitter).map(([count, gas]) => `${digits(gas)} (${count})`),
    ),
    row('  first time', ...Object.values(report.splitterFirstTime).map(digits)),
    row('  below two signatures', percent(report.oneSignatureBelowTwoPct)),
    row('bytes of code', digits(report.bytecodeSize)),
    '',
    `* at ${gasPriceGwei} gwei and ${ethUsd} USD an ETH (--gas-price, --eth-usd); an L2 charges its L1 data fee on top`,
  )
  return lines.join('\n')
}
