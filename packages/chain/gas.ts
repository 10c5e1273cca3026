import type { Network } from '@tollkeeper/sdk/protocol/networks'

/** Maximum gas of a transaction (EIP-7825). */
export const transactionGasCap = 2n ** 24n
/**
 * Maximum gas of a batch, as computed in this file; further payments go into another batch. It is below the maximum of a transaction
 * because nodes and builders reject transactions that are close to that maximum (alchemyplatform/rundler#1186), and because the
 * contract requires gas to be left before its last call. If gas is expensive, the count trigger fires at 150 payments: if they go to
 * one wallet, all of them fit. If they go to 150 wallets that never had USDC, 141 fit, and the other nine wait for the next batch,
 * because they are too few to fire the trigger.
 */
export const batchGasCut = 15_500_000n

/** Returns a batch's maximum gas on a network: {@link batchGasCut}, or less if a block holds less. */
export function gasCutOf({ batchGas }: Pick<Network, 'batchGas'>): bigint {
  return batchGas ?? batchGasCut
}

// contracts/BatchSettlement.sol requires this much gas before each call, so that one item can't make the others revert.
const minCallGas = 120_000n
const tailGas = 60_000n
const outcomeGas = 16n

// Upper bounds, including calldata, measured on the real USDC (`npm run bench -- gas`): 57,100 for the batch, 85,500 for a new
// buyer's two authorizations, 52,000 for a single authorization, and 22,400 more for a recipient without a balance.
const batchGas = 60_000n
const pairGas = 86_400n
const singleGas = 54_000n
const newPayeeGas = 22_800n

/** Gas for one authorization of a payer with code, whose signature check can use up all of it. */
const codeCallGas = 300_000n

/**
 * Gas for the sweep of one splitter if the splitter and its provider are new. A sweep to a provider with a balance takes a fifth
 * of this gas.
 */
const sweepCallGas = 120_000n
// Before sweeps, the contract also reserves gas for returning its result: 5,000, and 16 per payment.
const beforeSweepGas = 10_000n
/** Gas that must be left for one sweep. A call gets at most 63/64 of the remaining gas (EIP-150). */
const sweepGas = (sweepCallGas * 64n) / 63n + 1n
/** Additional gas for the first sweep of a batch, which may pay a platform's wallet that has no USDC yet. */
const firstSweepGas = (newPayeeGas * 64n) / 63n + 1n

export type BatchShape = {
  /** Number of payments with two authorizations. */
  pairs: number
  /** Number of payments with one authorization. */
  singles: number
  /** Number of distinct recipients (providers, splitters), without the platform's wallet. */
  payees: number
  /** Whether the payers have code. If so, each gets the maximum for its signature check. */
  hasCode: boolean
  /** Number of splitters to sweep. Default 0. */
  sweeps?: number
}

/** Returns the maximum gas of a batch, computed from the constants in this file. */
export function estimateBatchGas({ pairs, singles, payees, hasCode, sweeps = 0 }: BatchShape): bigint {
  const authorizations = BigInt(2 * pairs + singles)
  const items = hasCode
    ? authorizations * (codeCallGas + 20_000n)
    : BigInt(pairs) * pairGas + BigInt(singles) * singleGas
  const swept = sweeps > 0 ? firstSweepGas + BigInt(sweeps) * sweepGas : 0n
  return batchGas + items + BigInt(payees) * newPayeeGas + swept
}

/** Returns the maximum gas that the contract's call may use for this many sweeps. */
export function sweepGasLimit(sweeps: number): bigint {
  return BigInt(sweeps) * sweepCallGas + newPayeeGas
}

/**
 * Returns the gas that a batch reserves for this many sweeps, at most a quarter of its gas. A splitter is swept once it holds ten
 * payments, and a sweep takes as much gas as two payments, so a quarter is enough. A backlog of payments thus doesn't delay sweeps,
 * and a backlog of sweeps doesn't delay payments.
 */
export function roomForSweeps(sweeps: number, cut: bigint = batchGasCut): bigint {
  const wanted = sweeps > 0 ? firstSweepGas + BigInt(sweeps) * sweepGas : 0n
  const most = cut / 4n
  return wanted < most ? wanted : most
}

/** Returns how many splitters can be swept in a batch of this shape without exceeding the batch's gas limit. */
export function countSweepsThatFit(shape: BatchShape, cut: bigint = batchGasCut): number {
  const left = cut - estimateBatchGas(shape) - firstSweepGas
  return left > 0n ? Number(left / sweepGas) : 0
}

/**
 * Gas that a batch of tabs reserves per tab, line and payout, so that the contract can pay out everything that settled, however
 * much gas a call used. contracts/TabSettlement.sol has the same numbers as minimums. If a fork makes opcodes more expensive,
 * raise these reserves. The contract needs no change, because each call of it contains the reserves.
 */
export const tabReserves = { tabGas: 500n, lineGas: 250n, payoutGas: 55_000n } as const
/** Number of payouts that each batch of tabs makes in addition to the payouts to providers: the platform's part, and the reward. */
const ownPayouts = 2n

// Upper bounds, including calldata, from snapshots/tabs.json: 94,900 for the batch with the platform's payout and the reward, 48,000 for
// a tab, 480 for a line, 11,700 for a provider's payout, and 22,100 more if the provider had no balance.
const tabBatchGas = 96_000n
const tabGas = 48_200n
const tabLineGas = 510n
const payoutGas = 34_000n

/** The parts of a tab that take space in a batch in addition to its authorization. */
export type TabShape = {
  lines: number
  /** The distinct splits of the tab's lines, in any form in which equal splits are equal texts. */
  splits: readonly string[]
}

export type TabBatchShape = {
  tabs: number
  /** Number of lines of all tabs. */
  lines: number
  /** Number of distinct splits. */
  splits: number
  /** Whether the payers have code. If so, each gets the maximum for its signature check. */
  hasCode: boolean
}

/** Returns the maximum gas of a batch of tabs, computed from the constants in this file. */
export function estimateTabBatchGas(shape: TabBatchShape): bigint {
  return tabsGas(shape) + BigInt(shape.splits) * payoutGas
}

function tabsGas({ tabs, lines, hasCode }: TabBatchShape): bigint {
  const each = hasCode ? codeCallGas + 20_000n : tabGas
  return tabBatchGas + BigInt(tabs) * each + BigInt(lines) * tabLineGas
}

/**
 * Returns the gas limit of a transaction that settles tabs: the gas that the tabs use, and the gas that the contract requires to
 * be left before its last call and its payouts. Unused gas isn't paid for.
 */
export function tabBatchGasLimit(shape: TabBatchShape, calldata: Uint8Array): bigint {
  return limitOf(wantedTabBatchGas(shape), calldata)
}

function limitOf(wanted: bigint, calldata: Uint8Array): bigint {
  const floor = calldataFloor(calldata)
  const limit = wanted > floor ? wanted : floor
  return limit < transactionGasCap ? limit : transactionGasCap
}

function wantedTabBatchGas(shape: TabBatchShape): bigint {
  const { tabs, lines, splits, hasCode } = shape
  const left =
    (callGasLimit(hasCode) * 64n) / 63n +
    tailGas +
    tabReserves.tabGas * BigInt(tabs) +
    tabReserves.lineGas * BigInt(lines) +
    tabReserves.payoutGas * (BigInt(splits) + ownPayouts)
  return tabsGas(shape) + left
}

/** Returns how many of `tabs`, taken in order, fit below the gas limit of a batch. At least one. */
export function countTabsThatFit(
  tabs: readonly TabShape[],
  hasCode: boolean,
  cut: bigint = batchGasCut,
): number {
  const splits = new Set<string>()
  const shape = { tabs: 0, lines: 0, splits: 0, hasCode }
  for (const [index, tab] of tabs.entries()) {
    for (const split of tab.splits) splits.add(split)
    shape.tabs += 1
    shape.lines += tab.lines
    shape.splits = splits.size
    if (index > 0 && wantedTabBatchGas(shape) > cut) return index
  }
  return tabs.length
}

export function callGasLimit(hasCode: boolean): bigint {
  return hasCode ? codeCallGas : minCallGas
}

/** Returns the minimum gas for calldata (EIP-7623), which applies even if the execution uses less. */
export function calldataFloor(data: Uint8Array): bigint {
  let tokens = 0n
  for (const byte of data) tokens += byte === 0 ? 1n : 4n
  return 21_000n + 10n * tokens
}

/**
 * Returns the gas limit of a batch's transaction: the model's gas, and the gas that the contract requires to be left before its
 * last call. Unused gas isn't paid for.
 */
export function batchGasLimit(shape: BatchShape, calldata: Uint8Array): bigint {
  const callGas = callGasLimit(shape.hasCode)
  const reserve = (callGas * 64n) / 63n + tailGas + outcomeGas * BigInt(shape.pairs + shape.singles)
  const wanted = estimateBatchGas(shape) + reserve + (shape.sweeps ? beforeSweepGas : 0n)
  return limitOf(wanted, calldata)
}

/** Returns how many of `shapes`, taken in order, fit below the gas limit of a batch. At least one. */
export function countThatFit(
  items: { isPair: boolean; recipient: string }[],
  hasCode: boolean,
  cut: bigint = batchGasCut,
): number {
  const payees = new Set<string>()
  const shape = { pairs: 0, singles: 0, payees: 0, hasCode }
  for (const [index, item] of items.entries()) {
    payees.add(item.recipient)
    shape.payees = payees.size
    if (item.isPair) shape.pairs += 1
    else shape.singles += 1
    if (index > 0 && estimateBatchGas(shape) > cut) return index
  }
  return items.length
}

/** Maximum number of payments that fit into a batch of any shape, and therefore in one claim. */
export const mostPayments = Number(batchGasCut / singleGas)
/** Maximum number of tabs in a batch. */
export const mostTabs = Number(batchGasCut / tabGas)
/** Maximum number of payments with two authorizations in a batch. */
export const mostPairs = Number(batchGasCut / pairGas)
