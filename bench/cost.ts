/**
 * Computes how much the settlement of a payment costs, depending on the number of payments per day. Payments arrive at random, the keeper's triggers
 * group them into batches, and the real contracts settle batches of these sizes on the real USDC. The bench compares this with one transaction for
 * each payment, as x402's reference facilitator settles, and with the list price of a hosted facilitator.
 */
import { typicalBatchGas } from '@tollkeeper/chain/typicalGas'
import { type Arrival, arrivalTimes, simulateTriggers } from '@tollkeeper/ledger/queue/simulateTriggers'
import { defaultTriggers } from '@tollkeeper/ledger/queue/triggers'
import { closingTimes } from '@tollkeeper/ledger/tabs/upkeep'
import { alignColumns } from '@tollkeeper/runtime/alignColumns'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { splitAnyPrice } from '@tollkeeper/sdk/protocol/tier'
import { startLocalChain } from '../apps/devstack/chain/startLocalChain.ts'
import { createBench, largest } from './support/gasBench.ts'
import { createKindMeter, type KindMeter } from './support/gasKinds.ts'
import { atMost, type Goals } from './support/goals.ts'
import { mean, type Say } from './support/statistics.ts'

const perDay = [10, 100, 1_000, 10_000] as const
/** Milliseconds between two requests of a buyer on one tab. */
const nextRequestMs = 5_000
/** Coinbase's list price in USD and free payments per month, read at docs.cdp.coinbase.com/x402/seller/facilitator on 2026-11-29. */
const hosted = { usd: 0.001, freeAMonth: 1_000 }
const daysAMonth = 30
/** Number of payments in a splitter at which the keeper's next batch sweeps the splitter. */
const sweepCount = defaultTriggers.sweepCount

export const options = { price: '0.01', 'on-tab': 20, days: 7, 'gas-price': 0.002, 'eth-usd': 2_500 }

const kinds = ['twoSignatures', 'oneSignature', 'tab'] as const
type Kind = (typeof kinds)[number]
type Row = {
  /** USD of gas for each payment, or for each request on a tab. */
  usdPerPayment: Record<Kind | 'oneTransactionEach' | 'hostedListPrice', number>
  /** Average number of payments or tabs per transaction. */
  perBatch: Record<Kind, number>
  /** Average minutes from payment to transaction. */
  minutesWaited: Record<Kind, number>
}

export const figures = () => [
  'feeUsd',
  ...perDay.flatMap((count) =>
    [
      ...[...kinds, 'oneTransactionEach', 'hostedListPrice'].map((kind) => `usdPerPayment.${kind}`),
      ...kinds.map((kind) => `perBatch.${kind}`),
      ...kinds.map((kind) => `minutesWaited.${kind}`),
    ].map((figure) => `perDay.${count}.${figure}`),
  ),
]

/** Goals in USD at the default prices: the fee covers two signatures, and a request on a tab costs less than a tenth of a separate transaction. */
export const goals = (): Goals => ({
  'perDay.100.usdPerPayment.twoSignatures': atMost(0.0005),
  'perDay.100.usdPerPayment.tab': atMost(0.00004),
})

export async function run({ days, ...values }: typeof options, say: Say) {
  const onTab = values['on-tab']
  const price = parseUsdc(values.price)
  const { providerAmount, feeAmount } = splitAnyPrice(price)
  const usdPerGas = (values['gas-price'] * values['eth-usd']) / 1e9
  await using chain = await startLocalChain({ blockTimeMs: 0 })
  const meter = rememberGas(await createKindMeter(await createBench(chain)))
  const oneTransactionEach = (await meter.transfer()) * usdPerGas

  async function simulate(count: number): Promise<Row> {
    const times = arrivalTimes({ perDay: count, days, seed: count })
    const payments = times.map((at): Arrival => ({ at, price, amount: providerAmount }))
    const tabs = openTabs({ perDay: count, days, onTab, price, amount: providerAmount })
    const requests = {
      twoSignatures: payments.length,
      oneSignature: payments.length,
      tab: tabs.length * onTab,
    }
    const settled = {
      twoSignatures: await settleAll(payments, meter.twoSignatures, 'two_signatures'),
      oneSignature: await settleAll(payments, sweeping(meter.oneSignature), 'one_signature'),
      tab: await settleAll(tabs, meter.tabs, 'tab'),
    }
    const aMonth = count * daysAMonth
    return {
      usdPerPayment: {
        ...mapKinds((kind) => (settled[kind].gas * usdPerGas) / requests[kind]),
        oneTransactionEach,
        hostedListPrice: (Math.max(0, aMonth - hosted.freeAMonth) * hosted.usd) / aMonth,
      },
      perBatch: mapKinds((kind) => settled[kind].perBatch),
      minutesWaited: mapKinds((kind) => settled[kind].minutesWaited),
    }
  }

  async function settleAll(
    arrivals: readonly Arrival[],
    gasOf: (count: number) => Promise<number>,
    kind: Parameters<typeof typicalBatchGas>[0],
  ) {
    const unitsPerGas = usdPerGas * 1e6
    const costOf = (count: number) => BigInt(Math.ceil(Number(typicalBatchGas(kind, count)) * unitsPerGas))
    const batches = simulateTriggers(arrivals, defaultTriggers, costOf)
    let gas = 0
    // Measure the batches in order, because the earlier batches decide whether a batch pays out the splitter.
    for (const batch of batches)
      for (let left = batch.arrivals.length; left > 0; left -= largest)
        gas += await gasOf(Math.min(left, largest))
    const waited = batches.flatMap(({ at, arrivals }) =>
      arrivals.map((one) => (at - (one.waitsSince ?? one.at)) / 60_000),
    )
    return { gas, perBatch: arrivals.length / batches.length, minutesWaited: mean(waited) }
  }

  const rows: Record<number, Row> = {}
  for (const count of perDay) {
    rows[count] = await simulate(count)
    say(`${count} per day: simulated ${days} days and settled batches of every size`)
  }
  return { feeUsd: Number(feeAmount) / 1e6, perDay: rows }
}

/** Caches the gas of each batch size, because the same batch always costs the same. */
function rememberGas(meter: KindMeter): KindMeter {
  const remember = <Asked extends (number | boolean)[]>(measure: (...asked: Asked) => Promise<number>) => {
    const known = new Map<string, number>()
    return async (...asked: Asked) => {
      const gas = known.get(asked.join()) ?? (await measure(...asked))
      known.set(asked.join(), gas)
      return gas
    }
  }
  return {
    twoSignatures: remember(meter.twoSignatures),
    oneSignature: remember(meter.oneSignature),
    tabs: remember(meter.tabs),
    transfer: meter.transfer,
  }
}

/** Measures batches that pay out the splitter whenever it has enough payments. */
function sweeping(measure: KindMeter['oneSignature']) {
  let waiting = 0
  return (count: number) => {
    waiting += count
    const isSwept = waiting >= sweepCount
    if (isSwept) waiting = 0
    return measure(count, isSwept)
  }
}

/**
 * Opens a tab for each buyer, who makes `onTab` requests in a row and leaves. The gateway closes the tab after five idle minutes. The
 * time trigger counts a tab's waiting time from the opening of the tab.
 *
 * @returns the closed tabs in the order in which they closed, at least one
 */
function openTabs(of: {
  perDay: number
  days: number
  onTab: number
  price: bigint
  amount: bigint
}): Arrival[] {
  const { onTab, days } = of
  const opened = arrivalTimes({ perDay: of.perDay / onTab, days, seed: of.perDay })
  const requests = BigInt(onTab)
  return (opened.length > 0 ? opened : [0]).map((at) => ({
    at: at + (onTab - 1) * nextRequestMs + closingTimes.idleMs,
    waitsSince: at,
    price: of.price * requests,
    amount: of.amount * requests,
  }))
}

function mapKinds(of: (kind: Kind) => number): Record<Kind, number> {
  return { twoSignatures: of('twoSignatures'), oneSignature: of('oneSignature'), tab: of('tab') }
}

export function format(
  { feeUsd, perDay: rows }: Awaited<ReturnType<typeof run>>,
  { price, days, ...of }: typeof options,
): string {
  const usd = (value: number) => value.toFixed(6)
  const counts = Object.keys(rows).map(Number)
  const table = (title: string, lines: [name: string, cell: (row: Row) => string][]) => [
    ...alignColumns(
      [title.padEnd(38), ...counts.map((count) => `${count} per day`)],
      lines.map(([name, cell]) => [`  ${name}`, ...counts.map((count) => cell(rows[count] as Row))]),
    ),
    '',
  ]
  return [
    ...table('USD of gas per payment', [
      ['two signatures', ({ usdPerPayment }) => usd(usdPerPayment.twoSignatures)],
      ['one signature', ({ usdPerPayment }) => usd(usdPerPayment.oneSignature)],
      [`request on a tab of ${of['on-tab']}`, ({ usdPerPayment }) => usd(usdPerPayment.tab)],
      ['one transaction each', ({ usdPerPayment }) => usd(usdPerPayment.oneTransactionEach)],
      ["hosted facilitator's list price", ({ usdPerPayment }) => usd(usdPerPayment.hostedListPrice)],
      ["the platform's fee for comparison", () => usd(feeUsd)],
    ]),
    ...table('payments or tabs per transaction', [
      ['two signatures', ({ perBatch }) => perBatch.twoSignatures.toFixed(1)],
      ['one signature', ({ perBatch }) => perBatch.oneSignature.toFixed(1)],
      ['tabs', ({ perBatch }) => perBatch.tab.toFixed(1)],
    ]),
    ...table('minutes until the transaction', [
      ['two signatures', ({ minutesWaited }) => minutesWaited.twoSignatures.toFixed(1)],
      ['one signature', ({ minutesWaited }) => minutesWaited.oneSignature.toFixed(1)],
      ['tabs, since they were opened', ({ minutesWaited }) => minutesWaited.tab.toFixed(1)],
    ]),
    `at ${of['gas-price']} gwei and ${of['eth-usd']} USD per ETH, ${price} USDC per request, ${days} days; an OP-stack chain additionally`,
    `charges for data. Hosted: ${hosted.usd} USD per transaction including gas, ${hosted.freeAMonth} per month free`,
  ].join('\n')
}
