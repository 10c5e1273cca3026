import { homedir } from 'node:os'
import { join } from 'node:path'
import type { Address, Hex } from 'viem'
import { type Environment, readVariable, requireVariable } from '#process/env'
import type { NetworkName } from '#protocol/networks'

/** Amounts are USDC base units. */
export type BuyerSettings = {
  walletPrivateKey: Hex
  gatewayUrl: string
  network: NetworkName
  usdcAddress: Address | null
  walletFolder: string
  askAbove: bigint
  maxPayment: bigint
  maxDaily: bigint
  maxDailyPerHost: bigint | null
  /** Whose catalogue is searched. */
  discoveryUrl: string
  /** What clients over HTTP present. */
  token: string | null
}

/**
 * Reads the environment of `tollkeeper mcp`; process/variables.ts says what each variable means.
 *
 * @throws {ConfigError} that names the variable, what was expected, and what came unless it is a secret.
 */
export function readBuyerSettings(env: Environment): BuyerSettings {
  const gatewayUrl = readVariable(env, 'GATEWAY_URL')
  return {
    walletPrivateKey: requireVariable(env, 'WALLET_PRIVATE_KEY'),
    gatewayUrl,
    network: readVariable(env, 'NETWORK'),
    usdcAddress: readVariable(env, 'USDC_ADDRESS'),
    walletFolder: readVariable(env, 'WALLET_FOLDER') ?? join(homedir(), '.tollkeeper'),
    askAbove: readVariable(env, 'ASK_ABOVE_USDC'),
    maxPayment: readVariable(env, 'MAX_PAYMENT_USDC'),
    maxDaily: readVariable(env, 'MAX_DAILY_USDC'),
    maxDailyPerHost: readVariable(env, 'MAX_DAILY_USDC_PER_HOST'),
    discoveryUrl: readVariable(env, 'DISCOVERY_URL') ?? gatewayUrl,
    token: readVariable(env, 'MCP_TOKEN'),
  }
}
