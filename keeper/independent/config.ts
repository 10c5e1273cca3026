import { type GasLimits, gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { readNetworkSettings } from '@tollkeeper/chain/networkSettings'
import { type Environment, isSet, readVariable, requireVariable } from '@tollkeeper/runtime/env'
import { commonDeployments } from '@tollkeeper/sdk/protocol/deployments'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { readSendingSettings, requireWallets } from '../settings/config.ts'

/** Budget of a UTC day in USDC base units, for all networks together. */
const defaultBudget = 5_000_000n

export type IndependentConfig = ReturnType<typeof readIndependentConfig>

/**
 * Reads the environment of a keeper without a database.
 *
 * @throws {ConfigError} It names the variable, what was expected, and what came unless that is a secret.
 */
export function readIndependentConfig(env: Environment) {
  const gatewayUrl = requireVariable(env, 'KEEPER_GATEWAY_URL')
  const address = { host: readVariable(env, 'KEEPER_HOST'), port: readVariable(env, 'KEEPER_PORT') }
  const sending = readSendingSettings(env)
  // A stranger has no record of the deployment, and needs none: the contracts have the same addresses on every network.
  const networks = readNetworkSettings(env, undefined, commonDeployments)
  return {
    gatewayUrl,
    networks,
    wallets: requireWallets(env, networks),
    logLevel: readVariable(env, 'LOG_LEVEL'),
    /** Where health and metrics are served; null: nowhere. */
    http: isSet(env, 'KEEPER_PORT') ? address : null,
    metricsToken: readVariable(env, 'METRICS_TOKEN'),
    // Another operator's gateway is not to be asked four times a second.
    pollMs: readVariable(env, 'KEEPER_POLL_MS') ?? 2_000,
    settings: { ...sending, dailyBudget: sending.dailyBudget ?? defaultBudget },
  }
}

/**
 * The limits on gas of a keeper that isn't the operator's. They hold on test networks as well: nobody pays it back, and it can't know
 * whether its wallet's money is worth something to its owner.
 */
export function strangersLimits(
  { name }: { name: NetworkName },
  settings: IndependentConfig['settings'],
): GasLimits {
  return gasLimitsOf({ name, testnet: false }, settings)
}
