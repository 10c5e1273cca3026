import type { Hex } from 'viem'
import { type NetworkSettings, readNetworkSettings } from '#chain/networkSettings'
import {
  ConfigError,
  type Environment,
  readVariable,
  requireVariable,
  type VariableValue,
} from '#process/env'
import { readPrivateKeys, readSendingSettings } from '../config.ts'
import type { SettlerSettings } from './settler.ts'

export type IndependentConfig = {
  gatewayUrl: string
  networks: NetworkSettings[]
  privateKeys: Hex[]
  logLevel: VariableValue<'LOG_LEVEL'>
  pollMs: number
  /** USDC base units that may be spent on gas a day. */
  dailyBudget: bigint
  settings: SettlerSettings
}

/**
 * Reads the environment of a keeper that has no database.
 *
 * @throws {ConfigError} that names the variable, what was expected, and what came unless it is a secret.
 */
export function readIndependentConfig(env: Environment): IndependentConfig {
  const gatewayUrl = requireVariable(env, 'KEEPER_GATEWAY_URL')
  const privateKeys = readPrivateKeys(env)
  if (privateKeys.length === 0)
    throw new ConfigError(
      'KEEPER_PRIVATE_KEYS',
      'a private key, or several with commas between; or KEEPER_KEY_FILE',
    )
  return {
    gatewayUrl,
    networks: readNetworkSettings(env),
    privateKeys,
    logLevel: readVariable(env, 'LOG_LEVEL'),
    // Somebody else's gateway is not to be asked four times a second.
    pollMs: readVariable(env, 'KEEPER_POLL_MS') ?? 2_000,
    dailyBudget: readVariable(env, 'KEEPER_DAILY_BUDGET_USD'),
    settings: readSendingSettings(env),
  }
}
