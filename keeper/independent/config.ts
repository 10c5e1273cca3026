import { type GasLimits, gasLimitsOf } from '@tollkeeper/chain/gasLimits'
import { readNetworkSettings } from '@tollkeeper/chain/networkSettings'
import { type Environment, isSet, readVariable, requireVariable } from '@tollkeeper/runtime/env'
import { commonDeployment } from '@tollkeeper/sdk/protocol/deployments'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { readSendingSettings, requireWallets } from '../settings/config.ts'

/** Default budget per UTC day in USDC base units, for all networks together. */
const defaultBudget = 5_000_000n

export type IndependentSettings = ReturnType<typeof readIndependentSettings>

/**
 * Reads the environment of a keeper without a database.
 *
 * @throws {ConfigError} The message names the variable, the expected value, and the received value unless it is a secret.
 */
export function readIndependentSettings(env: Environment) {
  const gatewayUrl = requireVariable(env, 'KEEPER_GATEWAY_URL')
  const address = { host: readVariable(env, 'KEEPER_HOST'), port: readVariable(env, 'KEEPER_PORT') }
  const sending = readSendingSettings(env)
  // No record of the deployment is read, because the contracts have the same addresses on every network.
  const networks = readNetworkSettings(env, undefined, commonDeployment)
  return {
    gatewayUrl,
    networks,
    wallets: requireWallets(env, networks),
    logLevel: readVariable(env, 'LOG_LEVEL'),
    /** The address at which health and metrics are served; null if they aren't. */
    http: isSet(env, 'KEEPER_PORT') ? address : null,
    metricsToken: readVariable(env, 'METRICS_TOKEN'),
    // The operator's keeper polls four times per second by default. This keeper polls less often, because its requests go to someone else's gateway.
    pollMs: readVariable(env, 'KEEPER_POLL_MS') ?? 2_000,
    settings: { ...sending, dailyBudget: sending.dailyBudget ?? defaultBudget },
  }
}

/**
 * Returns the limits on gas of a keeper that isn't the operator's. They apply on test networks as well, because no one reimburses this
 * keeper, and it can't know whether its money has a value for the person who runs it.
 */
export function strangersLimits(
  network: Pick<Network, 'name' | 'maxFeePerGas'>,
  settings: IndependentSettings['settings'],
): GasLimits {
  return gasLimitsOf({ ...network, testnet: false }, settings)
}
