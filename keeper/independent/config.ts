import { readNetworkSettings } from '@tollkeeper/chain/networkSettings'
import { type Environment, isSet, readVariable, requireVariable } from '@tollkeeper/runtime/env'
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
  const networks = readNetworkSettings(env)
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
