import { type GasMeter, shareGas } from '@tollkeeper/chain/gasShares'
import { gasCostOf } from '@tollkeeper/chain/settledBatches'
import { weiToUsd } from '@tollkeeper/chain/settlementCost'
import type { TransactionReceipt } from 'viem'
import {
  decideGas,
  type GasDraw,
  type GasHold,
  type GasPolicy,
  type GasRequest,
  holdsAfterDraws,
} from './gasPolicy.ts'

/** Approves the gas of transactions by a policy and current prices, and reserves the amounts that fees don't cover. */
export type GasControl = {
  /**
   * Returns for each payment of a transaction the reason why it is held back because of gas cost, or null if it can be sent.
   * Reserves the draws of the payments that can be sent.
   *
   * @param isWhole true if the payments must be sent all together or not at all
   */
  approve: (requests: readonly GasRequest[], options: { isWhole: boolean }) => Promise<(GasHold | null)[]>
  /** Returns whether sweeps may add this much gas to the transaction of these payments. */
  approveSweeps: (requests: readonly GasRequest[], gas: bigint) => Promise<boolean>
  /** Returns the cost of a mined transaction in USDC base units. */
  costOf: (receipt: TransactionReceipt) => Promise<bigint>
}

type GasControlOptions = {
  meter: GasMeter
  policy: GasPolicy
  /** Reserves these amounts in order, each from its source. Returns for each whether there was enough. */
  draw: (draws: readonly GasDraw[]) => Promise<boolean[]>
  /** Reserves an amount for sweeps from the operator's budget. Returns whether there was enough. */
  drawForSweeps: (amount: bigint) => Promise<boolean>
  now: () => Date
}

export function createGasControl(options: GasControlOptions): GasControl {
  const { meter, policy, draw, drawForSweeps, now } = options
  return {
    async approve(requests, { isWhole }) {
      const decision = decideGas(policy, requests, await meter.read(), { isWhole, now: now() })
      const isDrawn = decision.draws.length > 0 ? await draw(decision.draws) : []
      return holdsAfterDraws(decision, isDrawn)
    },
    async approveSweeps(requests, gas) {
      if (policy.areSweepsFree) return true
      const prices = await meter.read()
      const shares = shareGas(requests, prices)
      const amount = policy.drawForSweeps({
        fees: requests.reduce((sum, { fee }) => sum + fee, 0n),
        spent: shares.reduce((sum, { expected }) => sum + expected, 0n),
        added: weiToUsd(gas * prices.expected, prices.usdPerToken),
      })
      return amount === 0n || (amount !== null && drawForSweeps(amount))
    },
    costOf: async (receipt) => weiToUsd(gasCostOf(receipt), (await meter.read()).usdPerToken),
  }
}
