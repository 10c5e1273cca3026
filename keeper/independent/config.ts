import type { Hex } from 'viem'
import { ConfigError, type NetworkSettings, parseNetworkSettings } from '#chain/networkSettings'
import { type Environment, readInteger, readPrivateKeys, readUrl, readUsdc } from '../config.ts'
import type { SettlerSettings } from './settler.ts'

export type IndependentConfig = {
  gatewayUrl: string
  networks: NetworkSettings[]
  privateKeys: Hex[]
  logLevel: string
  pollMs: number
  /** USDC base units that may be spent on gas a day. */
  dailyBudget: bigint
  settings: SettlerSettings
}

/**
 * Reads the environment of a keeper that has no database; see `.env.example`.
 *
 * @throws {ConfigError} naming the variable, what was expected and what came.
 */
export function parseIndependentConfig(env: Environment): IndependentConfig {
  const gatewayUrl = readUrl(env, 'KEEPER_GATEWAY_URL')
  if (gatewayUrl === null) throw new ConfigError('KEEPER_GATEWAY_URL', "the gateway's http(s) URL")
  const privateKeys = readPrivateKeys(env)
  if (privateKeys.length === 0)
    throw new ConfigError('KEEPER_KEY_FILE', 'the path of a file with a private key a line')
  return {
    gatewayUrl,
    networks: parseNetworkSettings(env),
    privateKeys,
    logLevel: env.LOG_LEVEL ?? 'info',
    // Somebody else's gateway is not to be asked four times a second.
    pollMs: readInteger(env, 'KEEPER_POLL_MS', 2_000, 100),
    dailyBudget: readUsdc(env, 'KEEPER_DAILY_BUDGET_USD', 5_000_000n),
    settings: {
      rebroadcastAfterMs: readInteger(env, 'REBROADCAST_AFTER_MS', 6_000, 100),
      replaceAfterMs: readInteger(env, 'REPLACE_AFTER_MS', 30_000, 100),
      priorityFeePerGas:
        env.PRIORITY_FEE_WEI === undefined ? null : BigInt(readInteger(env, 'PRIORITY_FEE_WEI', 0, 0)),
      maxFeePerGas: BigInt(readInteger(env, 'MAX_FEE_GWEI', 100, 1)) * 1_000_000_000n,
      gasTokenUsd: readUsdc(env, 'ETH_USD', 3_000_000_000n),
    },
  }
}
