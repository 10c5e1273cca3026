import type { TransactionReceipt } from 'viem'
import type { GasLimits } from '#chain/gasLimits'
import { type Entry, type GasMeter, type GasPrices, type GasShare, shareGas } from '#chain/gasShares'
import { weiToUsd } from '#chain/settlementCost'
import type { GasMeans } from '#ledger/queue/queue'
import type { HoldReason } from '#ledger/queue/stages'

/** A payment that wants gas, and what it has for it. */
export type Spender = Entry &
  GasMeans & {
    /** Null: of a keeper without a database. */
    paymentId: string | null
    /** Unix seconds. */
    validBefore: bigint
    /** Its fee can't be settled any more, and its provider isn't made to wait for that. */
    hasLostFee?: boolean
  }

/** What a payment would draw beyond its fee, USDC base units. */
export type Draw = { spender: Spender; amount: bigint; fromBudget: boolean }

export type Ceiling = {
  /** Whether gas is dearer than anything may be sent for. */
  isTooDear: () => Promise<boolean>
  /**
   * Who of those that would share a transaction has no gas: for each why, or null. The others go without it.
   *
   * @param isWhole all of them go, or none.
   */
  judge: (
    spenders: readonly Spender[],
    options: { isWhole: boolean },
  ) => Promise<(HoldReason | 'gas_price' | null)[]>
  /** Whether the fees of those that go carry this much more gas. */
  carries: (spenders: readonly Spender[], gas: bigint) => Promise<boolean>
  /** What a mined transaction cost, in USDC base units. */
  costOf: (receipt: TransactionReceipt) => Promise<bigint>
}

export type CeilingOptions = {
  meter: GasMeter
  settings: Pick<GasLimits, 'maxFeePerGas' | 'gasPerFee'>
  expiryLeadMs: number
  /** Takes what fees don't carry from where it is kept, the first first; for each whether there was enough. */
  draw: (draws: readonly Draw[]) => Promise<boolean[]>
  /** Whose gas money it is: of fees nothing reaches a stranger, so its budget bears all that it settles. */
  bears: 'what fees lack' | 'all'
  now: () => Date
}

/**
 * What gas may be spent for: a price that is never exceeded, and for each payment what its fee carries. What no fee carries is
 * drawn from what the operator gives for it: payments that were bought may draw shortly before they run out, all others at
 * once.
 */
export function createCeiling({ meter, settings, expiryLeadMs, draw, bears, now }: CeilingOptions): Ceiling {
  const { gasPerFee, maxFeePerGas } = settings

  function isCarried({ expected }: GasShare, fee: bigint): boolean {
    return gasPerFee === 0n ? fee > 0n || bears === 'all' : expected <= gasPerFee * fee
  }

  /** What it would have to draw; null: nothing, or it may not draw yet. */
  function findDraw(share: GasShare, spender: Spender): Draw | HoldReason | null {
    const { fee, isSold, gasLeft, validBefore, hasLostFee } = spender
    const until = BigInt(Math.floor((now().getTime() + expiryLeadMs) / 1000))
    const isUrgent = validBefore <= until || hasLostFee === true
    const isPaid = isCarried(share, fee)
    if (bears === 'all')
      return isPaid || isUrgent ? { spender, amount: share.expected, fromBudget: true } : 'gas_cost'
    if (isPaid) return null
    const amount = (isSold ? share.expected : share.most) - gasPerFee * fee
    if (amount <= gasLeft) return null
    return !isSold || isUrgent ? { spender, amount, fromBudget: isSold } : 'gas_cost'
  }

  async function judgeEach(spenders: readonly Spender[], prices: GasPrices): Promise<(HoldReason | null)[]> {
    const reasons = spenders.map((): HoldReason | null => null)
    const drawn = new Map<Spender, bigint>()
    // Who leaves makes it dearer for the others: until nobody else has to. As dear as it is with all of them it is for sure.
    for (;;) {
      const left = spenders.flatMap((spender, index) => (reasons[index] === null ? [{ spender, index }] : []))
      const shares = shareGas(
        left.map(({ spender }) => spender),
        prices,
      )
      const draws: (Draw & { index: number })[] = []
      let isStable = true
      for (const [place, { spender, index }] of left.entries()) {
        const found = shares[place] && findDraw(shares[place], spender)
        if (found === 'gas_cost') {
          reasons[index] = found
          isStable = false
        } else if (found && typeof found === 'object' && found.amount > (drawn.get(spender) ?? 0n))
          draws.push({ ...found, index })
      }
      if (!isStable) continue
      if (draws.length === 0) return reasons
      const isDrawn = await draw(draws)
      for (const [place, { spender, amount, index, fromBudget }] of draws.entries()) {
        if (isDrawn[place]) drawn.set(spender, amount)
        else {
          reasons[index] = fromBudget ? 'gas_budget' : 'gas_allowance'
          isStable = false
        }
      }
      if (isStable) return reasons
    }
  }

  /** As one: what was submitted together pays together. */
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
    if (found === null || typeof found === 'string') return found
    const [isDrawn] = await draw([{ ...found, spender: first }])
    return isDrawn ? null : found.fromBudget ? 'gas_budget' : 'gas_allowance'
  }

  return {
    isTooDear: async () => (await meter.read()).baseFeePerGas > maxFeePerGas,
    async judge(spenders, { isWhole }) {
      const prices = await meter.read()
      if (prices.baseFeePerGas > maxFeePerGas) return spenders.map(() => 'gas_price')
      if (!isWhole) return judgeEach(spenders, prices)
      const reason = await judgeWhole(spenders, prices)
      return spenders.map(() => reason)
    },
    async carries(spenders, gas) {
      if (gasPerFee === 0n) return true
      const prices = await meter.read()
      const spent = shareGas(spenders, prices).reduce((sum, { expected }) => sum + expected, 0n)
      const fees = spenders.reduce((sum, { fee }) => sum + fee, 0n)
      return spent + weiToUsd(gas * prices.expected, prices.usdPerToken) <= gasPerFee * fees
    },
    async costOf(receipt) {
      const l1Fee = 'l1Fee' in receipt && typeof receipt.l1Fee === 'bigint' ? receipt.l1Fee : 0n
      return weiToUsd(receipt.gasUsed * receipt.effectiveGasPrice + l1Fee, (await meter.read()).usdPerToken)
    },
  }
}
