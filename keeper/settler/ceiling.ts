import type { GasLimits } from '@tollkeeper/chain/gasLimits'
import {
  type Entry,
  type GasMeter,
  type GasPrices,
  type GasShare,
  shareGas,
  shareOf,
  strangers,
} from '@tollkeeper/chain/gasShares'
import { gasCostOf } from '@tollkeeper/chain/settledBatches'
import { weiToUsd } from '@tollkeeper/chain/settlementCost'
import type { GasMeans } from '@tollkeeper/ledger/queue/queue'
import type { HoldReason } from '@tollkeeper/ledger/queue/stages'
import type { TransactionReceipt } from 'viem'

/** A payment that wants gas, and what can pay for it. */
export type Spender = Entry &
  GasMeans & {
    /** Null: a keeper without a database has it. */
    paymentId: string | null
    /** The reward of the wallet that settles it. Default 0. */
    reward?: bigint
    /** Its fee can't be settled any more, and its provider shouldn't wait because of that. */
    hasLostFee?: boolean
  }

/** The amount that a payment would draw beyond its fee, USDC base units. */
export type Draw = { spender: Spender; amount: bigint; fromBudget: boolean }

export type Ceiling = ReturnType<typeof createCeiling>

export type CeilingOptions = {
  meter: GasMeter
  settings: Pick<GasLimits, 'maxFeePerGas' | 'gasPerFee'>
  /** Draws what fees don't carry from its source, in order; for each draw, whether there was enough. */
  draw: (draws: readonly Draw[]) => Promise<boolean[]>
  /** Draws what fees don't carry of the gas of sweeps from what the operator adds to fees. Returns whether there was enough. */
  drawForSweeps: (amount: bigint) => Promise<boolean>
  /** Who pays the gas. A stranger gets only the reward of tabs, no fees, so its budget bears the rest. */
  bears: 'what fees lack' | 'all'
  now: () => Date
}

/**
 * Decides which gas may be spent: at most a maximum price, and for each payment what its fee carries. What a fee lacks is
 * drawn from the operator's money: for payments bought at the gateway while their gas costs at most `gasPerFee`
 * times their fee, and at any cost shortly before they expire.
 */
export function createCeiling(options: CeilingOptions) {
  const { meter, settings, draw, drawForSweeps, bears, now } = options
  const { gasPerFee, maxFeePerGas } = settings

  function isCarried({ expected }: GasShare, fee: bigint): boolean {
    return gasPerFee === 0n ? fee > 0n || bears === 'all' : expected <= gasPerFee * fee
  }

  /** What it would have to draw; null: nothing. */
  function findDraw(share: GasShare, spender: Spender): Draw | null {
    const { fee, isSold, gasLeft, reward = 0n } = spender
    if (bears === 'all')
      return share.expected <= reward ? null : { spender, amount: share.expected - reward, fromBudget: true }
    if (share.expected <= fee || (gasPerFee === 0n && fee > 0n)) return null
    const amount = (isSold ? share.expected : share.most) - fee
    return amount <= gasLeft ? null : { spender, amount, fromBudget: isSold }
  }

  /** Whether the operator may already add what its fee lacks. */
  function mayDraw({ isSold, urgentAt, hasLostFee }: Spender): boolean {
    return hasLostFee === true || Number(urgentAt) * 1000 <= now().getTime() || (!isSold && bears !== 'all')
  }

  function isWorthIt(share: GasShare, spender: Spender): boolean {
    if (bears === 'all') return isCarried(share, spender.fee) || findDraw(share, spender) === null
    return (spender.isSold && isCarried(share, spender.fee)) || findDraw(share, spender) === null
  }

  /** Payments that can go together at once, if their draws succeed. Each one that leaves makes the batch dearer for the others. */
  function findCompany(spenders: readonly Spender[], prices: GasPrices): Map<Spender, GasShare> {
    let paying = spenders
    for (;;) {
      const shares = shareGas(paying, prices)
      const left = new Map<Spender, GasShare>()
      for (const [index, spender] of paying.entries()) {
        const share = shares[index]
        if (!share) continue
        if (isWorthIt(share, spender)) left.set(spender, share)
      }
      if (left.size === paying.length) return left
      paying = [...left.keys()]
    }
  }

  async function judgeEach(spenders: readonly Spender[], prices: GasPrices): Promise<(HoldReason | null)[]> {
    const company = findCompany(spenders, prices)
    // As if none of the others got anything.
    const alone = strangers(company.size + 1)
    const reasons = new Map<Spender, HoldReason>()
    const draws: Draw[] = []
    for (const spender of spenders) {
      const share = company.get(spender)
      const found = findDraw(share ?? shareOf(spender, alone, prices), spender)
      if (!share && !mayDraw(spender)) reasons.set(spender, 'gas_cost')
      else if (found) draws.push(found)
    }
    const isDrawn = draws.length > 0 ? await draw(draws) : []
    for (const [index, { spender, fromBudget }] of draws.entries())
      if (!isDrawn[index]) reasons.set(spender, fromBudget ? 'gas_budget' : 'gas_allowance')
    return spenders.map((spender) => reasons.get(spender) ?? null)
  }

  /** Judges a submission as one, since it pays together. */
  async function judgeWhole(spenders: readonly Spender[], prices: GasPrices): Promise<HoldReason | null> {
    const [first] = spenders
    if (!first) return null
    const shares = shareGas(spenders, prices)
    const sum = (of: (one: Spender) => bigint) => spenders.reduce((total, one) => total + of(one), 0n)
    const share = {
      expected: shares.reduce((total, { expected }) => total + expected, 0n),
      most: shares.reduce((total, { most }) => total + most, 0n),
    }
    const means = { fee: sum(({ fee }) => fee), gasLeft: sum(({ gasLeft }) => gasLeft), isSold: false }
    const found = findDraw(share, { ...first, ...means })
    if (found === null) return null
    const [isDrawn] = await draw([{ ...found, spender: first }])
    return isDrawn ? null : found.fromBudget ? 'gas_budget' : 'gas_allowance'
  }

  return {
    /** Whether gas is dearer than anything may be sent for. */
    isTooDear: async () => (await meter.read()).baseFeePerGas > maxFeePerGas,
    /**
     * Says of each payment that would share a transaction why nothing pays for its gas; null: something does, and it goes.
     *
     * @param isWhole all of them go, or none.
     */
    async judge(
      spenders: readonly Spender[],
      { isWhole }: { isWhole: boolean },
    ): Promise<(HoldReason | 'gas_price' | null)[]> {
      const prices = await meter.read()
      if (prices.baseFeePerGas > maxFeePerGas) return spenders.map(() => 'gas_price')
      if (!isWhole) return judgeEach(spenders, prices)
      const reason = await judgeWhole(spenders, prices)
      return spenders.map(() => reason)
    },
    /** Whether those that go may have this much more gas: what their fees don't carry of it is the budget's, while that lasts. */
    async carries(spenders: readonly Spender[], gas: bigint): Promise<boolean> {
      if (gasPerFee === 0n && bears !== 'all') return true
      const prices = await meter.read()
      const shares = shareGas(spenders, prices)
      const spent = shares.reduce((sum, { expected }) => sum + expected, 0n)
      const fees = spenders.reduce((sum, { fee }) => sum + fee, 0n)
      const more = weiToUsd(gas * prices.expected, prices.usdPerToken)
      if (gasPerFee !== 0n && spent + more > gasPerFee * fees) return false
      const paid = bears === 'all' ? 0n : fees > spent ? fees - spent : 0n
      return more <= paid || drawForSweeps(more - paid)
    },
    /** What a mined transaction cost, in USDC base units. */
    async costOf(receipt: TransactionReceipt): Promise<bigint> {
      return weiToUsd(gasCostOf(receipt), (await meter.read()).usdPerToken)
    },
  }
}
