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

/** How much of a batch a payment takes. */
export type Entry = {
  /** It has two authorizations, not one. */
  isPair: boolean
  recipient: Address
  /** Its payer has code, which may burn all the gas that it gets. */
  hasCode: boolean
  /** Set if it is a tab. */
  tab?: TabShape | null
}

/** Current prices of gas. */
export type GasPrices = {
  baseFeePerGas: bigint
  /** Wei a gas unit that a transaction pays if it is mined now. */
  expected: bigint
  /** Wei a gas unit that it offers at most. */
  most: bigint
  /** Wei for a word of calldata on the L1 of an OP-stack chain. */
  dataFee: bigint
  /** USDC base units for one whole gas token. */
  usdPerToken: bigint
}

/** In USDC base units: at the current price, and at the highest offered one. */
export type GasShare = { expected: bigint; most: bigint }

export type GasMeter = { read: () => Promise<GasPrices> }

const feesTtlMs = 1_000
const priceTtlMs = 60_000
const dataFeeTtlMs = 15_000
/** A busy batch, so large that its transaction's own cost hardly counts. */
const sample = { pairs: 0, singles: 100, payees: 1, hasCode: false }

/** Reads the prices of gas on a network, not more often than they change. */
export function createGasMeter(
  { network, deployment, client }: ServedNetwork,
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
  const price = remember(priceTtlMs, () =>
    readGasTokenPrice(client, network.ethUsdFeed, settings.gasTokenUsd),
  )
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

// The parts of gas.ts' model.
const none: BatchShape = { pairs: 0, singles: 0, payees: 0, hasCode: false }
const batchGas = estimateBatchGas(none)
const payeeGas = estimateBatchGas({ ...none, payees: 1 }) - batchGas
const noTabs: TabBatchShape = { tabs: 0, lines: 0, splits: 0, hasCode: false }
const tabBatchGas = estimateTabBatchGas(noTabs)
const splitGas = estimateTabBatchGas({ ...noTabs, splits: 1 }) - tabBatchGas

/**
 * The cost of a payment in a batch: its own gas and data, and its part of what all share.
 *
 * @param sharing how many payments the batch has, and how many of them pay a recipient or have a tab's split, this one
 * included.
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

/** The payments that share a batch with one. */
type Sharing = { all: number; countOf: (recipientOrSplit: string) => number }

/** Returns the cost of a payment in a batch of `all` payments if none of the others has its recipient or its splits. */
export function worstCaseShare(entry: Entry, all: number, prices: GasPrices): GasShare {
  return shareOf(entry, { all, countOf: () => 1 }, prices)
}

/** {@link shareOf} each payment of a batch. If one leaves, the others get more expensive, none cheaper. */
export function shareGas(entries: readonly Entry[], prices: GasPrices): GasShare[] {
  const counts = new Map<string, number>()
  for (const { recipient, tab } of entries)
    for (const key of tab ? tab.splits : [recipient]) counts.set(key, (counts.get(key) ?? 0) + 1)
  const sharing = { all: entries.length, countOf: (key: string) => counts.get(key) ?? 1 }
  return entries.map((entry) => shareOf(entry, sharing, prices))
}

/** The cost of a transaction with just these payments. */
export function sumGas(entries: readonly Entry[], prices: GasPrices): GasShare {
  return shareGas(entries, prices).reduce(
    (sum, { expected, most }) => ({ expected: sum.expected + expected, most: sum.most + most }),
    { expected: 0n, most: 0n },
  )
}
