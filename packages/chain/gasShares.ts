import { createCache } from '@tollkeeper/runtime/cache'
import { ceilDiv } from '@tollkeeper/sdk/protocol/amount'
import type { Address } from 'viem'
import { estimateFees } from './feeEstimate.ts'
import {
  type BatchShape,
  estimateBatchGas,
  estimateTabBatchGas,
  type TabBatchShape,
  type TabShape,
} from './gas.ts'
import type { GasLimits } from './gasLimits.ts'
import type { ServedNetwork } from './servedNetworks.ts'
import { dataWords, estimateDataFee, readGasTokenPrice, tabDataWords, weiToUsd } from './settlementCost.ts'

/** The space that a payment takes in a batch. */
export type Entry = {
  /** Whether it has two authorizations. */
  isPair: boolean
  recipient: Address
  /** Whether its payer has code, which may use up all the gas that it gets. */
  hasCode: boolean
  /** The tab's shape, if the payment settles a tab. */
  tab?: TabShape | null
}

/** Current prices of gas. */
export type GasPrices = {
  baseFeePerGas: bigint
  /** Price of a gas unit in wei that a transaction pays if it is mined now. */
  expected: bigint
  /** Maximum price of a gas unit in wei that a transaction offers. */
  most: bigint
  /** Price of a word of calldata in wei on the L1 of an OP-stack chain. */
  dataFee: bigint
  /** USDC base units for one whole gas token. */
  usdPerToken: bigint
}

/** A cost in USDC base units, at the current gas price and at the maximum that a transaction offers. */
export type GasShare = { expected: bigint; most: bigint }

/**
 * Returns the amount to reserve for gas that no fee covers: the cost at the current price plus a margin of 50%, but not more than
 * the cost at the maximum offered price.
 */
export function withMargin({ expected, most }: GasShare): bigint {
  const wanted = expected + ceilDiv(expected, 2n)
  return wanted < most ? wanted : most
}

export type GasMeter = { read: () => Promise<GasPrices> }

const feesTtlMs = 1_000
const priceTtlMs = 60_000
const dataFeeTtlMs = 15_000
/** The shape of a busy batch. It has so many payments that the transaction's fixed cost hardly matters. */
const sample = { pairs: 0, singles: 100, payees: 1, hasCode: false }

/**
 * A made-up address for the contracts before they are deployed. Estimates are still right, because the fee for data depends only on a transaction's
 * bytes.
 */
export const undeployed: MeteredNetwork['deployment'] = {
  batchSettlement: '0x0000000000000000000000000000000000000001',
}

/** A network whose prices of gas can be read. */
export type MeteredNetwork = Pick<ServedNetwork, 'network' | 'client'> & {
  deployment: Pick<ServedNetwork['deployment'], 'batchSettlement'>
}

/** Reads the gas prices on a network, and caches each of them for a while. */
export function createGasMeter(
  { network, deployment, client }: MeteredNetwork,
  settings: { priorityFeePerGas: bigint | null; gasTokenUsd: bigint } & Pick<GasLimits, 'maxFeePerGas'>,
  now: () => Date,
): GasMeter {
  const remember = <T>(ttlMs: number, load: () => Promise<T>) => {
    const cache = createCache<string, T>({
      load,
      ttlMs,
      refreshAfterMs: ttlMs / 2,
      max: 1,
      now: () => now().getTime(),
    })
    return () => cache.get('')
  }
  const fees = remember(feesTtlMs, () => estimateFees(client, settings))
  const price = remember(priceTtlMs, () => readGasTokenPrice(client, network, settings.gasTokenUsd))
  const dataFee = remember(dataFeeTtlMs, async () => {
    const contract = deployment.batchSettlement
    const whole = await estimateDataFee(client, { network, contract, from: contract, shape: sample })
    return ceilDiv(whole, BigInt(dataWords(sample)))
  })
  return {
    async read() {
      const [{ baseFeePerGas, maxFeePerGas, maxPriorityFeePerGas }, { usdPerToken }, perWord] =
        await Promise.all([fees(), price(), dataFee()])
      const expected = baseFeePerGas + maxPriorityFeePerGas
      const most = maxFeePerGas > expected ? maxFeePerGas : expected
      return { baseFeePerGas, expected, most, dataFee: perWord, usdPerToken }
    },
  }
}

// Gas of each part of a batch, computed by the functions of gas.ts.
const none: BatchShape = { pairs: 0, singles: 0, payees: 0, hasCode: false }
const batchGas = estimateBatchGas(none)
const payeeGas = estimateBatchGas({ ...none, payees: 1 }) - batchGas
const noTabs: TabBatchShape = { tabs: 0, lines: 0, splits: 0, hasCode: false }
const tabBatchGas = estimateTabBatchGas(noTabs)
const splitGas = estimateTabBatchGas({ ...noTabs, splits: 1 }) - tabBatchGas

/**
 * Returns the cost of a payment in a batch: its own gas and data, and its share of what all payments have in common.
 *
 * @param sharing the number of payments in the batch, and the number of payments with the same recipient or the same split of a
 * tab. Both numbers include this payment.
 */
function shareOf(
  { isPair, hasCode, recipient, tab }: Entry,
  sharing: Sharing,
  { expected, most, dataFee, usdPerToken }: GasPrices,
): GasShare {
  const own = tab ? gasOfTab(tab, hasCode, sharing) : gasOfPayment({ isPair, hasCode, recipient }, sharing)
  const gas = own.gas + ceilDiv(own.batchGas, BigInt(sharing.all))
  const data = dataFee * BigInt(own.words)
  return {
    expected: weiToUsd(gas * expected + data, usdPerToken),
    most: weiToUsd(gas * most + data, usdPerToken),
  }
}

function gasOfPayment({ isPair, hasCode, recipient }: Omit<Entry, 'tab'>, { countOf }: Sharing) {
  const shape = { ...none, hasCode, pairs: isPair ? 1 : 0, singles: isPair ? 0 : 1 }
  const gas = estimateBatchGas(shape) - batchGas + ceilDiv(payeeGas, BigInt(countOf(recipient)))
  return { gas, batchGas, words: dataWords(shape) }
}

function gasOfTab({ lines, splits }: TabShape, hasCode: boolean, { countOf }: Sharing) {
  const shape = { tabs: 1, lines, splits: 0, hasCode }
  const paidOut = splits.reduce((sum, split) => sum + ceilDiv(splitGas, BigInt(countOf(split))), 0n)
  const gas = estimateTabBatchGas(shape) - tabBatchGas + paidOut
  return { gas, batchGas: tabBatchGas, words: tabDataWords({ ...shape, splits: splits.length }) }
}

/** The payments that share a batch. `all` is their number; `countOf` returns how many of them have the given recipient or split. */
type Sharing = { all: number; countOf: (recipientOrSplit: string) => number }

/** Returns the cost of a payment in a batch of `all` payments if no other payment has the same recipient or the same splits. */
export function worstCaseShare(entry: Entry, all: number, prices: GasPrices): GasShare {
  return shareOf(entry, { all, countOf: () => 1 }, prices)
}

/**
 * Returns the cost of each payment of a batch ({@link shareOf}). If a payment leaves the batch, the cost of each remaining payment
 * stays the same or increases.
 */
export function shareGas(entries: readonly Entry[], prices: GasPrices): GasShare[] {
  const counts = new Map<string, number>()
  for (const { recipient, tab } of entries)
    for (const key of tab ? tab.splits : [recipient]) counts.set(key, (counts.get(key) ?? 0) + 1)
  const sharing = { all: entries.length, countOf: (key: string) => counts.get(key) ?? 1 }
  return entries.map((entry) => shareOf(entry, sharing, prices))
}

/** Returns the cost of a transaction with only these payments. */
export function sumGas(entries: readonly Entry[], prices: GasPrices): GasShare {
  return shareGas(entries, prices).reduce(
    (sum, { expected, most }) => ({ expected: sum.expected + expected, most: sum.most + most }),
    { expected: 0n, most: 0n },
  )
}
