import type { GasLimits } from '@tollkeeper/chain/gasLimits'
import {
  type Entry,
  type GasPrices,
  type GasShare,
  shareGas,
  worstCaseShare,
} from '@tollkeeper/chain/gasShares'
import type { GasMeans } from '@tollkeeper/ledger/queue/queue'
import type { HoldReason } from '@tollkeeper/ledger/queue/stages'

/** A payment that wants gas, and what can pay for it. */
export type GasRequest = Entry &
  GasMeans & {
    /** Null in a keeper without a database. */
    paymentId: string | null
    /** The reward of the wallet that settles it. Default 0. */
    reward?: bigint
    /** Its fee can't be settled any more, and its provider shouldn't wait because of that. */
    hasLostFee?: boolean
  }

/** An amount beyond fees that has to be reserved for gas, USDC base units. */
export type GasDraw = {
  /** The payment that draws it; one of a submission draws for all. */
  request: GasRequest
  amount: bigint
  /** It comes from the operator's budget, not from a grant or the common allowance. */
  fromBudget: boolean
}

/** The gas that fees pay for, and the gas that sweeps would add; USDC base units. */
type SweepCost = { fees: bigint; spent: bigint; added: bigint }

/** The rules by which a keeper spends gas on payments. They differ in who pays what fees don't cover. */
export type GasPolicy = {
  /** Whether gas is too expensive to send anything. */
  isPriceTooHigh: (prices: GasPrices) => boolean
  /** Returns what a payment has to draw for its share of the gas; null if that is covered. */
  drawFor: (request: GasRequest, share: GasShare) => Omit<GasDraw, 'request'> | null
  /** Whether a payment goes at this share, with its draw if it needs one. */
  isWorth: (request: GasRequest, share: GasShare) => boolean
  /** Whether a payment goes at any share, with its draw if it needs one. */
  isDueAnyway: (request: GasRequest, now: Date) => boolean
  /** Whether sweeps go at any cost and draw nothing, so that no price is needed. */
  areSweepsFree: boolean
  /** Returns what sweeps that aren't free have to draw from the operator's budget; null if they cost too much. */
  drawForSweeps: (cost: SweepCost) => bigint | null
}

type PolicySettings = Pick<GasLimits, 'maxFeePerGas' | 'gasPerFee'>

/**
 * Creates the policy of a keeper that earns the fees, so that they pay for gas. The operator's budget adds what the fee of a payment
 * bought at the gateway lacks, while its gas costs at most `gasPerFee` times its fee, and at any cost shortly before it expires.
 */
export function createFeeCoveredPolicy({ maxFeePerGas, gasPerFee }: PolicySettings): GasPolicy {
  const policy: GasPolicy = {
    isPriceTooHigh: ({ baseFeePerGas }) => baseFeePerGas > maxFeePerGas,
    drawFor({ fee, isSold, gasLeft }, share) {
      if (share.expected <= fee || (gasPerFee === 0n && fee > 0n)) return null
      const amount = (isSold ? share.expected : share.most) - fee
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
 * Creates the policy of a keeper that earns no fees, only the rewards of tabs, so that its budget pays all of the gas beyond them. It
 * settles what costs at most `gasPerFee` times its fee, and at any cost what is about to expire.
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

/** Why a payment waits for gas. `gas_price`: gas is too expensive for all of its network. */
export type GasHold = HoldReason | 'gas_price'

/** What has to be drawn for payments that would share a transaction, and which of them wait. */
export type GasDecision = {
  /** By position: why nothing pays for a payment's gas; null if it goes once its draw succeeds. */
  holds: readonly (GasHold | null)[]
  /** `positions`: the payments that wait if it fails. */
  draws: readonly (GasDraw & { positions: readonly number[] })[]
}

/**
 * Decides for payments that would share a transaction which of them go, and what these have to draw.
 *
 * @param isWhole all of them go, or none.
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
    // A payment that goes at any cost bears its share as if none of the others had its recipient.
    const share = shared ?? worstCaseShare(request, shares.size + 1, prices)
    const isHeld = !shared && !policy.isDueAnyway(request, now)
    const draw = isHeld ? null : policy.drawFor(request, share)
    holds.push(isHeld ? 'gas_cost' : null)
    if (draw) draws.push({ ...draw, request, positions: [position] })
  }
  return { holds, draws }
}

/** Returns the shares of the payments that are worth them together. Each one that leaves makes the batch more expensive for the others. */
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

/** Decides about a submission as one payment, since its payments pay together. */
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

/** Returns why each payment waits for gas (null: it goes), now that it is known which draws succeeded. */
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
