import type { Network, NetworkName } from '@tollkeeper/sdk/protocol/networks'

/** Limits on the cost of settling. Above them, payments wait until they are about to expire. */
export type GasLimits = {
  /** Maximum price of a gas unit in wei that a transaction offers. */
  maxFeePerGas: bigint
  /** Maximum ratio of a batch's gas cost to the platform's fees in it; 0: no limit. */
  gasPerFee: bigint
  /** Maximum gas cost per UTC day in USDC base units; 0: no limit. */
  dailyBudget: bigint
}

const gwei = 1_000_000_000n

// At least 60 times the price on a quiet day, which is in gwei: base 0.01, optimism 0.001, arbitrum 0.1, ethereum 1, polygon 30.
const maxFees: { [network in NetworkName]?: bigint } = {
  base: 2n * gwei,
  optimism: 2n * gwei,
  arbitrum: 10n * gwei,
  polygon: 2_000n * gwei,
  'polygon-amoy': 2_000n * gwei,
}
const defaultMaxFee = 100n * gwei

/** Returns the operator's limits, or else the network's own. By default, only the gas price is limited on test networks. */
export function gasLimitsOf(
  { name, maxFeePerGas, testnet }: Pick<Network, 'name' | 'maxFeePerGas' | 'testnet'>,
  set: { [Limit in keyof GasLimits]?: bigint | null },
): GasLimits {
  return {
    maxFeePerGas: set.maxFeePerGas ?? maxFeePerGas ?? maxFees[name] ?? defaultMaxFee,
    gasPerFee: set.gasPerFee ?? (testnet ? 0n : 10n),
    dailyBudget: set.dailyBudget ?? (testnet ? 0n : 100_000_000n),
  }
}
