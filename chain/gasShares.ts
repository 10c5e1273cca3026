import type { Address } from 'viem'
import { createCache } from '#process/cache'
import { ceilDiv } from '#protocol/amount'
import { estimateFees } from './feeEstimate.ts'
import { type BatchShape, estimateBatchGas } from './gas.ts'
import type { GasLimits } from './gasLimits.ts'
import type { ServedNetwork } from './servedNetworks.ts'
import { dataWords, estimateDataFee, readGasTokenPrice, weiToUsd } from './settlementCost.ts'

/** What a payment takes of a batch. */
export type Entry = {
  /** Two authorizations, not one. */
  isPair: boolean
  recipient: Address
  /** Its payer's code may burn all that it is given. */
  hasCode: boolean
}

/** What gas costs at the moment. */
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

/** In USDC base units: at the price of now, and at the most that is offered for it. */
export type GasShare = { expected: bigint; most: bigint }

export type GasMeter = { read: () => Promise<GasPrices> }

const feesTtlMs = 1_000
const priceTtlMs = 60_000
const dataFeeTtlMs = 15_000
/** As large as a busy batch, so that what a transaction brings besides its payments hardly counts. */
const sample = { pairs: 0, singles: 100, payees: 1, hasCode: false }

/** Reads what gas costs on a network, not more often than it changes. */
export function createGasMeter(
  { network, deployment, client }: ServedNetwork,
  settings: { priorityFeePerGas: bigint | null; gasTokenUsd: bigint } & Pick<GasLimits, 'maxFeePerGas'>,
  now: () => Date,
): GasMeter {
  const remember = <T>(ttlMs: number, load: () => Promise<T>) => {
    const cache = createCache<string, T>({
      ...{ load, ttlMs, refreshAfterMs: ttlMs / 2, max: 1 },
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

// The model of gas.ts, taken apart.
const none: BatchShape = { pairs: 0, singles: 0, payees: 0, hasCode: false }
const batchGas = estimateBatchGas(none)
const payeeGas = estimateBatchGas({ ...none, payees: 1 }) - batchGas

/**
 * What a payment of a batch costs: its own gas and data, and its part of what they share.
 *
 * @param company how many there are in the batch, and how many of them pay this recipient; itself included.
 */
export function shareOf(
  { isPair, hasCode }: Entry,
  company: { all: number; sameRecipient: number },
  { expected, most, dataFee, usdPerToken }: GasPrices,
): GasShare {
  const shape = { ...none, hasCode, pairs: isPair ? 1 : 0, singles: isPair ? 0 : 1 }
  const gas =
    estimateBatchGas(shape) -
    batchGas +
    ceilDiv(payeeGas, BigInt(company.sameRecipient)) +
    ceilDiv(batchGas, BigInt(company.all))
  const data = dataFee * BigInt(dataWords(shape))
  return {
    expected: weiToUsd(gas * expected + data, usdPerToken),
    most: weiToUsd(gas * most + data, usdPerToken),
  }
}

/** {@link shareOf} for each of a batch. One that leaves makes the others dearer, and none cheaper. */
export function shareGas(entries: readonly Entry[], prices: GasPrices): GasShare[] {
  const counts = new Map<Address, number>()
  for (const { recipient } of entries) counts.set(recipient, (counts.get(recipient) ?? 0) + 1)
  return entries.map((entry) =>
    shareOf(entry, { all: entries.length, sameRecipient: counts.get(entry.recipient) ?? 1 }, prices),
  )
}

/** What a transaction of just these payments costs. */
export function sumGas(entries: readonly Entry[], prices: GasPrices): GasShare {
  return shareGas(entries, prices).reduce(
    (sum, { expected, most }) => ({ expected: sum.expected + expected, most: sum.most + most }),
    { expected: 0n, most: 0n },
  )
}
