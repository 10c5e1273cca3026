/** Most gas a transaction may have (EIP-7825). */
export const transactionGasCap = 2n ** 24n
/**
 * The gas at which a batch is cut, by the model below. It is below the cap because nodes and builders refuse what comes close to it
 * (alchemyplatform/rundler#1186), and because the contract wants gas left before its last call. The raised count's 150 payments
 * are to one wallet, so all of them fit; of payments to 150 wallets that never had USDC, 141 do, and the others, which
 * fired no trigger, ride with the next batch.
 */
export const batchGasCut = 15_500_000n

// contracts/BatchSettlement.sol requires this much before each call, so that one item can't revert the others.
const minCallGas = 120_000n
const tailGas = 60_000n
const outcomeGas = 16n

// Upper bounds, calldata included, measured on the real USDC (`npm run bench -- gas`): 57,100 for the batch, 85,500 for
// the pair of a new buyer, 22,400 more for a recipient that had no balance; 52,000 for an authorization alone.
const batchGas = 60_000n
const pairGas = 86_400n
const singleGas = 54_000n
const newPayeeGas = 22_800n

/** Gas for one authorization of a payer with code, whose signature check can burn all of it. */
const codeCallGas = 300_000n

/** Gas for the sweep of one splitter, when splitter and provider are new. A known one takes a fifth. */
const sweepCallGas = 120_000n
// The contract also keeps 5,000 gas for its return, and 16 a payment.
const beforeSweepGas = 10_000n
/** EIP-150: a call gets at most 63/64 of what is left. */
const sweepGas = (sweepCallGas * 64n) / 63n + 1n
/** The first sweep of a batch may pay a platform's wallet that holds no USDC. */
const firstSweepGas = (newPayeeGas * 64n) / 63n + 1n

export type BatchShape = {
  /** Number of payments with two authorizations. */
  pairs: number
  /** Number of payments with one. */
  singles: number
  /** Number of distinct recipients (providers, splitters) without the platform's wallet. */
  payees: number
  /** The payers have code, so each gets its full cap. */
  hasCode: boolean
  /** Number of splitters to sweep. Default 0. */
  sweeps?: number
}

/** Gas that a batch uses at most, by the model. */
export function estimateBatchGas({ pairs, singles, payees, hasCode, sweeps = 0 }: BatchShape): bigint {
  const authorizations = BigInt(2 * pairs + singles)
  const items = hasCode
    ? authorizations * (codeCallGas + 20_000n)
    : BigInt(pairs) * pairGas + BigInt(singles) * singleGas
  const swept = sweeps > 0 ? firstSweepGas + BigInt(sweeps) * sweepGas : 0n
  return batchGas + items + BigInt(payees) * newPayeeGas + swept
}

/** Most gas that the contract's call may use for this many sweeps. */
export function sweepGasLimit(sweeps: number): bigint {
  return BigInt(sweeps) * sweepCallGas + newPayeeGas
}

/**
 * The gas that a batch keeps for this many sweeps, at most a quarter of its gas. A splitter that is worth a sweep holds ten
 * payments, and a sweep takes as much gas as two, so neither waits behind a backlog of the other.
 */
export function roomForSweeps(sweeps: number): bigint {
  const wanted = sweeps > 0 ? firstSweepGas + BigInt(sweeps) * sweepGas : 0n
  const most = batchGasCut / 4n
  return wanted < most ? wanted : most
}

/** How many splitters can be swept in a batch of this shape, under the gas cut. */
export function countSweepsThatFit(shape: BatchShape): number {
  const left = batchGasCut - estimateBatchGas(shape) - firstSweepGas
  return left > 0n ? Number(left / sweepGas) : 0
}

/**
 * Gas that a batch of tabs keeps for each tab, line and payout, so that all that settled is paid out whatever a call burns. These are the
 * least that contracts/TabSettlement.sol keeps. If a fork makes opcodes more expensive, raise them here: they are in the calldata.
 */
export const tabReserves = { tabGas: 500n, lineGas: 250n, payoutGas: 55_000n } as const
/** The platform's payout and the reward. */
const ownPayouts = 2n

// Upper bounds, calldata included, from snapshots/tabs.json: 93,500 for the batch with the platform's payout and the reward, 47,800
// for a tab, 480 for a line, 11,700 for a provider's payout, and 22,100 more where he had no balance.
const tabBatchGas = 96_000n
const tabGas = 48_200n
const tabLineGas = 510n
const payoutGas = 34_000n

/** How much of a batch a tab takes beside its authorization. */
export type TabShape = {
  lines: number
  /** The distinct splits of its lines, by any names. */
  splits: readonly string[]
}

export type TabBatchShape = {
  tabs: number
  /** Number of lines of all tabs. */
  lines: number
  /** Number of distinct splits. */
  splits: number
  /** The payers have code, so each gets its full cap. */
  hasCode: boolean
}

/** Gas that a batch of tabs uses at most, by the model. */
export function estimateTabBatchGas(shape: TabBatchShape): bigint {
  return tabsGas(shape) + BigInt(shape.splits) * payoutGas
}

function tabsGas({ tabs, lines, hasCode }: TabBatchShape): bigint {
  const each = hasCode ? codeCallGas + 20_000n : tabGas
  return tabBatchGas + BigInt(tabs) * each + BigInt(lines) * tabLineGas
}

/**
 * Gas limit of a transaction of tabs: the gas that they use, and the gas that the contract wants left before its last call and its
 * payouts. Unused gas isn't paid.
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

/** How many of `tabs`, taken in order, fit under the gas cut. At least one. */
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

/** EIP-7623: calldata costs at least this much, whatever the execution costs. */
export function calldataFloor(data: Uint8Array): bigint {
  let tokens = 0n
  for (const byte of data) tokens += byte === 0 ? 1n : 4n
  return 21_000n + 10n * tokens
}

/**
 * Gas limit of a batch's transaction: the model's gas, and the gas that the contract wants left before its last call. Unused
 * gas isn't paid.
 */
export function batchGasLimit(shape: BatchShape, calldata: Uint8Array): bigint {
  const callGas = callGasLimit(shape.hasCode)
  const reserve = (callGas * 64n) / 63n + tailGas + outcomeGas * BigInt(shape.pairs + shape.singles)
  const wanted = estimateBatchGas(shape) + reserve + (shape.sweeps ? beforeSweepGas : 0n)
  return limitOf(wanted, calldata)
}

/** How many of `shapes`, taken in order, fit under the gas cut. At least one. */
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

/** Most payments of a batch, of any shape: a claim looks at no more. */
export const mostPayments = Number(batchGasCut / singleGas)
/** Most tabs of a batch. */
export const mostTabs = Number(batchGasCut / tabGas)
/** Most payments of two authorizations in a batch. */
export const mostPairs = Number(batchGasCut / pairGas)
