/**
 * What settling costs on the real USDC, four ways side by side: the floor (the same authorizations executed inside one
 * transaction with nothing around them), BatchSettlement, Multicall3.aggregate3, and two transactions a payment.
 */
import { parseArgs } from 'node:util'
import {
  type Address,
  createTestClient,
  decodeFunctionResult,
  encodeFunctionData,
  type Hex,
  http,
  keccak256,
  multicall3Abi,
  parseAbi,
  publicActions,
  size,
  stringToHex,
  walletActions,
} from 'viem'
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts'
import { hardhat } from 'viem/chains'
import { usdcAbi } from '#protocol/abi/usdc'
import { parseUsdc } from '#protocol/amount'
import { feeNonce, maxTimeoutSeconds } from '#protocol/challenge'
import { eip712Domain, splitSignature, transferWithAuthorizationTypes } from '#protocol/eip3009'
import { networks } from '#protocol/networks'
import type { SignedAuthorization } from '#protocol/payload'
import { encodeSettle, encodeSettleAuthorizations, type Sweep, triggerCodes } from '#protocol/settlement'
import { splitPrice } from '#protocol/tier'
import { devAccount } from '../scripts/chain/accounts.ts'
import { multicall3Address } from '../scripts/chain/prepareChain.ts'
import { type LocalChain, startLocalChain } from '../scripts/chain/startLocalChain.ts'
import { contracts } from '../scripts/deploy/contracts.ts'
import { measureSplitters, type SplitterReport } from './gasSplitter.ts'
import { gasFloorRuntimeCode } from './generated/gasFloor.ts'

const sizes = [1, 10, 50, 100, 150] as const
const largest = 150
/** Percentages are reported from this size on; below it the transaction's base cost dominates. */
const comparedSizes = [50, 100, 150] as const
/** EIP-7825's cap on a transaction's gas. */
const transactionGasCap = 2n ** 24n
const baseGas = 21_000
const callGasLimit = 150_000n
/** AuthorizationUsed and Transfer. */
const logsPerAuthorization = 2

const floorAbi = parseAbi(['function measure(address token, bytes[] calls) returns (uint256 total)'])
const floorAddress: Address = '0x00000000000000000000000000000000000f1007'

export type Payment = { authorization: SignedAuthorization; fee: SignedAuthorization }
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

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      json: { type: 'boolean', default: false },
      'gas-price': { type: 'string', default: '0.001' },
      'eth-usd': { type: 'string', default: '3000' },
    },
  })
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  const report = await measure(chain)
  if (values.json) console.log(JSON.stringify(report))
  else console.log(format(report, Number(values['gas-price']), Number(values['eth-usd'])))
}

async function measure(chain: LocalChain): Promise<Report> {
  const bench = await createBench(chain)
  const { provider, buyers, pay } = bench
  const [buyer] = buyers
  if (buyer === undefined) throw new Error('no buyers')

  const different = await Promise.all(buyers.map((account, i) => pay(account, provider, `different ${i}`)))
  const one = await Promise.all(buyers.map((_, i) => pay(buyer, provider, `one ${i}`)))
  const fresh = await Promise.all(
    buyers.map((account, i) => pay(account, addressOf(`new provider ${i}`), `fresh ${i}`)),
  )
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

type Call = { to: Address; data: Hex }
export type Bench = Awaited<ReturnType<typeof createBench>>

function accountOf(seed: string): PrivateKeyAccount {
  return privateKeyToAccount(keccak256(stringToHex(seed)))
}

function addressOf(seed: string): Address {
  return accountOf(seed).address.toLowerCase() as Address
}

async function createBench(chain: LocalChain) {
  const { localhost: deployment } = chain.deployments
  if (deployment === undefined) throw new Error('nothing is deployed on the local chain')
  const { usdc, batchSettlement, splitterFactory } = deployment
  const client = createTestClient({
    mode: 'hardhat',
    chain: hardhat,
    transport: http(chain.url),
    account: devAccount(1),
    pollingInterval: 5,
  })
    .extend(publicActions)
    .extend(walletActions)
  const platform = addressOf('platform')
  const provider = addressOf('provider')
  const buyers = Array.from({ length: largest }, (_, i) => accountOf(`buyer ${i}`))
  await chain.mintUsdc([platform, provider, ...buyers.map(({ address }) => address)], parseUsdc('1000'))
  await client.setCode({ address: floorAddress, bytecode: gasFloorRuntimeCode })

  const domain = eip712Domain(networks.localhost, usdc)
  const { timestamp } = await client.getBlock()
  const window = { validAfter: 0n, validBefore: timestamp + BigInt(maxTimeoutSeconds) }
  const price = parseUsdc('0.01')
  const { providerAmount, feeAmount } = splitPrice(price)
  const batch = {
    token: usdc,
    feeRecipient: platform,
    batchId: keccak256(stringToHex('bench')),
    trigger: triggerCodes.count,
    callGasLimit,
  }

  async function sign(buyer: PrivateKeyAccount, to: Address, value: bigint, nonce: Hex) {
    const message = { from: buyer.address.toLowerCase() as Address, to, value, ...window, nonce }
    const signature = await buyer.signTypedData({
      domain,
      types: transferWithAuthorizationTypes,
      primaryType: 'TransferWithAuthorization',
      message,
    })
    return { ...message, signature }
  }

  function transfer({ signature, ...authorization }: SignedAuthorization): Call {
    const { from, to, value, validAfter, validBefore, nonce } = authorization
    const { v, r, s } = splitSignature(signature)
    const data = encodeFunctionData({
      abi: usdcAbi,
      functionName: 'transferWithAuthorization',
      args: [from, to, value, validAfter, validBefore, nonce, v, r, s],
    })
    return { to: usdc, data }
  }

  const transfers = (payments: readonly Payment[]) =>
    payments.flatMap(({ authorization, fee }) => [transfer(authorization), transfer(fee)])

  return {
    provider,
    buyers,
    transfer,
    addressOf,
    platform,
    price,
    fee: feeAmount,
    token: usdc,
    factory: splitterFactory,
    mint: (addresses: readonly Address[]) => chain.mintUsdc(addresses, parseUsdc('1')),

    async pay(buyer: PrivateKeyAccount, to: Address, seed: string): Promise<Payment> {
      const nonce = keccak256(stringToHex(seed))
      return {
        authorization: await sign(buyer, to, providerAmount, nonce),
        fee: await sign(buyer, platform, feeAmount, feeNonce(nonce)),
      }
    },

    payOne: (buyer: PrivateKeyAccount, to: Address, seed: string) =>
      sign(buyer, to, price, keccak256(stringToHex(seed))),

    settleOnes(authorizations: readonly SignedAuthorization[], sweep: Sweep): Call {
      return {
        to: batchSettlement,
        data: encodeSettleAuthorizations(batch, authorizations, sweep).calldata,
      }
    },

    settle(payments: readonly Payment[]): Call {
      return { to: batchSettlement, data: encodeSettle(batch, payments).calldata }
    },

    multicall(payments: readonly Payment[]): Call {
      const calls = transfers(payments).map(({ to, data }) => ({
        target: to,
        allowFailure: true,
        callData: data,
      }))
      const data = encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [calls] })
      return { to: multicall3Address, data }
    },

    async floorOf(payments: readonly Payment[]): Promise<number> {
      const calls = transfers(payments).map(({ data }) => data)
      const { data } = await client.call({
        to: floorAddress,
        data: encodeFunctionData({ abi: floorAbi, functionName: 'measure', args: [usdc, calls] }),
        gas: transactionGasCap,
      })
      return Number(decodeFunctionResult({ abi: floorAbi, functionName: 'measure', data: data ?? '0x' }))
    },

    /** @param authorizations - How many must settle; where none does, the transaction must revert. */
    async gasOf(call: Call, authorizations: number): Promise<number> {
      const hash = await client.sendTransaction({ ...call, gas: transactionGasCap })
      const { status, gasUsed, logs } = await client.waitForTransactionReceipt({ hash })
      const settled = logs.filter(({ address }) => address === usdc).length / logsPerAuthorization
      if (settled !== authorizations || (status === 'success') !== authorizations > 0) {
        throw new Error(
          `${settled} of ${authorizations} authorizations settled, the transaction ended as ${status}`,
        )
      }
      return Number(gasUsed)
    },

    /** Each measurement starts from the same state. */
    async isolated<T>(body: () => Promise<T>): Promise<T> {
      const id = await client.snapshot()
      try {
        return await body()
      } finally {
        await client.revert({ id })
      }
    },
  }
}

/** SPEC.md 8.2's reference figures: what a batch costs in gas, in USD. */
const referenceUsd: BySize = { 10: 0.005, 50: 0.01, 100: 0.01 }

function format(report: Report, gasPriceGwei: number, ethUsd: number): string {
  const usdOf = (gas: number) => (gas * gasPriceGwei * ethUsd) / 1e9
  const row = (...cells: (string | number)[]) =>
    cells.map((cell, i) => (i === 0 ? String(cell).padEnd(26) : String(cell).padStart(12))).join('')
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
