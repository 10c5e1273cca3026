import type { GasPrices } from './gasShares.ts'
import { dataWords, tabDataWords } from './settlementCost.ts'

/**
 * How a payment is signed: with two authorizations (provider and fee), with one to a splitter, or as a tab that contains many
 * requests.
 *
 * `packages/chain/gas.ts` has upper bounds, by which a keeper cuts batches and decides which payments are worth their gas. This
 * file has the gas that a transaction actually uses, to tell people what it costs. `packages/chain/typicalGas.test.ts` settles
 * real batches and compares their gas with it.
 */
export const paymentKinds = ['two_signatures', 'one_signature', 'tab'] as const
export type PaymentKind = (typeof paymentKinds)[number]

/**
 * Gas of the transaction, and of each payment in it, including calldata. Measured on the real USDC, with recipients that have
 * held USDC before.
 */
const measured: Record<PaymentKind, { batch: bigint; each: bigint }> = {
  two_signatures: { batch: 56_850n, each: 85_500n },
  one_signature: { batch: 53_450n, each: 46_920n },
  tab: { batch: 89_150n, each: 48_260n },
}

/** Gas of sweeping a splitter in a batch. The keeper sweeps a splitter once the splitter holds ten payments, or has held one payment for a day. */
export const sweepGas = 29_220n
const paymentsPerSweep = 10

/** Gas that each further provider on a tab adds. The payout to the first provider is part of the batch's gas. */
export const tabLineGas = 510n

/** The current prices of a gas unit, of a word of calldata on an OP-stack chain, and of the gas token. */
export type UnitPrices = Pick<GasPrices, 'expected' | 'dataFee' | 'usdPerToken'>

/**
 * Returns the gas of a whole transaction that settles `count` payments of one kind to one provider.
 *
 * @param sweeps number of splitters that the transaction sweeps. Default: the average, which for payments with one signature is `count / 10` and at
 * most 1, and otherwise 0.
 */
export function typicalBatchGas(kind: PaymentKind, count: number, sweeps?: number): bigint {
  const { batch, each } = measured[kind]
  return batch + each * BigInt(count) + sweepPart(kind, count, sweeps)
}

function sweepPart(kind: PaymentKind, count: number, sweeps?: number): bigint {
  if (kind !== 'one_signature') return 0n
  if (sweeps !== undefined) return sweepGas * BigInt(sweeps)
  return (sweepGas * BigInt(Math.min(count, paymentsPerSweep))) / BigInt(paymentsPerSweep)
}

/** Returns the number of calldata words that a payment adds. An OP-stack chain charges for each. */
function wordsOf(kind: PaymentKind): bigint {
  if (kind === 'tab') return BigInt(tabDataWords({ tabs: 1, lines: 1, splits: 1 }))
  return BigInt(
    dataWords({ pairs: kind === 'two_signatures' ? 1 : 0, singles: kind === 'one_signature' ? 1 : 0 }),
  )
}

/** Number of 10^-12 USD in one USDC base unit. Costs need this finer unit, because the gas of a request on a tab costs less than a base unit. */
export const picoUsdPerUnit = 1_000_000n

/**
 * Returns the gas cost of settling one payment when `sharing` payments of its kind share a transaction, in 10^-12 USD.
 *
 * @param requests number of requests that the payment pays: more than one if it settles a tab. The cost is returned per request. Default 1.
 * @example
 * gasCostOfPayment('two_signatures', 100, { expected: 2_000_000n, dataFee: 0n, usdPerToken: 2_500_000_000n })
 * // 430_342_500n, that is 0.00043 USD
 */
export function gasCostOfPayment(
  kind: PaymentKind,
  sharing: number,
  { expected, dataFee, usdPerToken }: UnitPrices,
  requests = 1,
): bigint {
  const wei = typicalBatchGas(kind, sharing) * expected + wordsOf(kind) * BigInt(sharing) * dataFee
  return (wei * usdPerToken * picoUsdPerUnit) / (10n ** 18n * BigInt(sharing) * BigInt(requests))
}
