import type { GasLimits } from '@tollkeeper/chain/gasLimits'
import {
  type Entry,
  type GasPrices,
  type GasShare,
  shareGas,
  withMargin,
  worstCaseShare,
} from '@tollkeeper/chain/gasShares'
import type { GasMeans } from '@tollkeeper/ledger/queue/queue'
import type { HoldReason } from '@tollkeeper/ledger/queue/stages'

/** A payment that needs gas, and the means to pay for it. */
export type GasRequest = Entry &
  GasMeans & {
    /** Null in a keeper without a database. */
    paymentId: string | null
    /** The reward for the wallet that settles it. Default 0. */
    reward?: bigint
    /** Whether the payment's fee can no longer settle. If so, the provider's part is sent without waiting for cheaper gas. */
    hasLostFee?: boolean
  }

/** An amount beyond fees that must be reserved for gas, in USDC base units. */
export type GasDraw = {
  /** The payment that draws the amount. One payment of a submission draws for all. */
  request: GasRequest
  amount: bigint
  /** Whether the amount comes from the operator's budget, instead of a grant or the common allowance. */
  fromBudget: boolean
}

/** Amounts in USDC base units: the fees of the payments, the gas cost of the payments, and the gas cost that sweeps would add. */
type SweepCost = { fees: bigint; spent: bigint; added: bigint }

/** The rules by which a keeper spends gas on payments. Policies differ in who pays the gas that fees don't cover. */
export type GasPolicy = {
  /** Whether the gas price is too high to send anything. */
  isPriceTooHigh: (prices: GasPrices) => boolean
  /** Returns the amount that a payment must draw for its share of the gas, or null if the share is covered. */
  drawFor: (request: GasRequest, share: GasShare) => Omit<GasDraw, 'request'> | null
  /** Whether a payment may be sent if its gas costs this share. If the payment needs a draw, the draw must succeed as well. */
  isWorth: (request: GasRequest, share: GasShare) => boolean
  /** Whether a payment may be sent at any cost. If the payment needs a draw, the draw must succeed as well. */
  isDueAnyway: (request: GasRequest, now: Date) => boolean
  /** Whether sweeps are sent at any cost without a draw, so that no price is needed. */
  areSweepsFree: boolean
  /** Returns the amount that sweeps must draw from the operator's budget if they aren't free, or null if they cost too much. */
  drawForSweeps: (cost: SweepCost) => bigint | null
}

type PolicySettings = Pick<GasLimits, 'maxFeePerGas' | 'gasPerFee'>

/**
 * Creates the policy of a keeper that earns the fees, so that they pay for gas. If a payment was bought at the gateway and its fee doesn't
 * cover its gas, the operator's budget pays the rest, provided that the gas costs at most `gasPerFee` times the fee. Shortly before the
 * payment expires, the budget pays at any cost.
 */
export function createFeeCoveredPolicy({ maxFeePerGas, gasPerFee }: PolicySettings): GasPolicy {
  const policy: GasPolicy = {
    isPriceTooHigh: ({ baseFeePerGas }) => baseFeePerGas > maxFeePerGas,
    drawFor({ fee, isSold, gasLeft }, share) {
      if (share.expected <= fee || (gasPerFee === 0n && fee > 0n)) return null
      const amount = (isSold ? share.expected : withMargin(share)) - fee
      return amount <= gasLeft ? null : { amount, fromBudget: isSold }
    },
    isWorth(request, share) {
      const { fee, isSold } = request
      const isInProportion = gasPerFee === 0n ? fee > 0n : share.expected <= gasPerFee * fee
      return (isSold && isInProportion) || policy.drawFor(request, share) === null
    },
    isDueAnyway: (request, now) => isUrgent(request, now) || !request.isSold,
    areSweepsFree: gasPerFee === 0n,
    drawForSweeps({ fees, spent, added }) {
      if (spent + added > gasPerFee * fees) return null
      const left = fees > spent ? fees - spent : 0n
      return added > left ? added - left : 0n
    },
  }
  return policy
}

/**
 * Creates the policy of a keeper that earns no fees, only the rewards of tabs, so that its budget pays all gas beyond the rewards. It
 * settles a payment if its gas costs at most `gasPerFee` times its fee, and at any cost if the payment expires soon.
 */
export function createFullCostPolicy({ maxFeePerGas, gasPerFee }: PolicySettings): GasPolicy {
  const policy: GasPolicy = {
    isPriceTooHigh: ({ baseFeePerGas }) => baseFeePerGas > maxFeePerGas,
    drawFor({ reward = 0n }, share) {
      return share.expected <= reward ? null : { amount: share.expected - reward, fromBudget: true }
    },
    isWorth(request, share) {
      const isInProportion = gasPerFee === 0n || share.expected <= gasPerFee * request.fee
      return isInProportion || policy.drawFor(request, share) === null
    },
    isDueAnyway: isUrgent,
    areSweepsFree: false,
    drawForSweeps({ fees, spent, added }) {
      return gasPerFee !== 0n && spent + added > gasPerFee * fees ? null : added
    },
  }
  return policy
}

function isUrgent({ urgentAt, hasLostFee }: GasRequest, now: Date): boolean {
  return hasLostFee === true || Number(urgentAt) * 1000 <= now.getTime()
}

/** The reason why a payment is held back because of gas cost. `gas_price`: the gas price is too high for all payments of the network. */
export type GasHold = HoldReason | 'gas_price'

/** Which payments of a possible transaction are held, and the draws that the others need. */
export type GasDecision = {
  /** By position: the reason why a payment is held; null if it is sent once its draw succeeds. */
  holds: readonly (GasHold | null)[]
  /** `positions` are the payments that are held if the draw fails. */
  draws: readonly (GasDraw & { positions: readonly number[] })[]
}

/**
 * Decides which payments of a possible transaction are sent, and which amounts they must draw.
 *
 * @param isWhole true if the payments must be sent all together or not at all
 */
export function decideGas(
  policy: GasPolicy,
  requests: readonly GasRequest[],
  prices: GasPrices,
  { isWhole, now }: { isWhole: boolean; now: Date },
): GasDecision {
  if (policy.isPriceTooHigh(prices)) return { holds: requests.map(() => 'gas_price'), draws: [] }
  return isWhole ? decideWhole(policy, requests, prices) : decideEach(policy, requests, prices, now)
}

function decideEach(
  policy: GasPolicy,
  requests: readonly GasRequest[],
  prices: GasPrices,
  now: Date,
): GasDecision {
  const shares = shareAmongWorthy(policy, requests, prices)
  const holds: (GasHold | null)[] = []
  const draws: (GasDraw & { positions: number[] })[] = []
  for (const [position, request] of requests.entries()) {
    const shared = shares.get(request)
    // For a payment that is sent at any cost, assume that no other payment pays the same recipient, so its share is the highest possible.
    const share = shared ?? worstCaseShare(request, shares.size + 1, prices)
    const isHeld = !shared && !policy.isDueAnyway(request, now)
    const draw = isHeld ? null : policy.drawFor(request, share)
    holds.push(isHeld ? 'gas_cost' : null)
    if (draw) draws.push({ ...draw, request, positions: [position] })
  }
  return { holds, draws }
}

/**
 * Returns the gas shares of the payments that are worth sending. Each payment that isn't worth its share is left out, which raises the shares of the
 * remaining payments.
 */
function shareAmongWorthy(
  policy: GasPolicy,
  requests: readonly GasRequest[],
  prices: GasPrices,
): Map<GasRequest, GasShare> {
  let paying = requests
  for (;;) {
    const shares = shareGas(paying, prices)
    const left = new Map<GasRequest, GasShare>()
    for (const [index, request] of paying.entries()) {
      const share = shares[index]
      if (share && policy.isWorth(request, share)) left.set(request, share)
    }
    if (left.size === paying.length) return left
    paying = [...left.keys()]
  }
}

/** Decides about a submission as if it were one payment, because its payments share their fees. */
function decideWhole(policy: GasPolicy, requests: readonly GasRequest[], prices: GasPrices): GasDecision {
  const [first] = requests
  const holds = requests.map(() => null)
  if (!first) return { holds, draws: [] }
  const shares = shareGas(requests, prices)
  const sum = <Part>(parts: readonly Part[], of: (part: Part) => bigint) =>
    parts.reduce((total, part) => total + of(part), 0n)
  const share = { expected: sum(shares, ({ expected }) => expected), most: sum(shares, ({ most }) => most) }
  const fee = sum(requests, (request) => request.fee)
  const gasLeft = sum(requests, (request) => request.gasLeft)
  const draw = policy.drawFor({ ...first, fee, gasLeft, isSold: false }, share)
  return {
    holds,
    draws: draw ? [{ ...draw, request: first, positions: requests.map((_, index) => index) }] : [],
  }
}

/** Returns the final holds, given the draws that succeeded: for each payment the reason, or null if it is sent. */
export function holdsAfterDraws(
  { holds, draws }: GasDecision,
  isDrawn: readonly boolean[],
): (GasHold | null)[] {
  const reasons = [...holds]
  for (const [index, { positions, fromBudget }] of draws.entries()) {
    if (isDrawn[index]) continue
    for (const position of positions) reasons[position] = fromBudget ? 'gas_budget' : 'gas_allowance'
  }
  return reasons
}
