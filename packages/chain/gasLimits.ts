import type { Network, NetworkName } from '@tollkeeper/sdk/protocol/networks'

/** Limits on the cost of settling. Above them payments wait until they are about to expire. */
export type GasLimits = {
  /** Wei; no transaction offers more for a gas unit. */
  maxFeePerGas: bigint
  /** How many times the platform's fees their gas may cost; 0: any number. */
  gasPerFee: bigint
  /** USDC base units that gas may cost a UTC day; 0: no limit. */
  dailyBudget: bigint
}

const gwei = 1_000_000_000n

// About a hundred times what each costs on a quiet day: base 0.01, ethereum 1, polygon 30.
const maxFees: Partial<Record<NetworkName, bigint>> = {
  base: 2n * gwei,
  ethereum: 100n * gwei,
  polygon: 2_000n * gwei,
  'polygon-amoy': 2_000n * gwei,
}

/** The operator's limits, or else the network's own; on test networks only the price is limited. */
export function gasLimitsOf(
  { name, testnet }: Pick<Network, 'name' | 'testnet'>,
  set: { [Limit in keyof GasLimits]?: bigint | null },
): GasLimits {
  return {
    maxFeePerGas: set.maxFeePerGas ?? maxFees[name] ?? 100n * gwei,
    gasPerFee: set.gasPerFee ?? (testnet ? 0n : 10n),
    dailyBudget: set.dailyBudget ?? (testnet ? 0n : 100_000_000n),
  }
}
