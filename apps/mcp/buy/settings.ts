import { homedir } from 'node:os'
import { join } from 'node:path'
import { type Environment, readVariable, requireVariable } from '@tollkeeper/runtime/env'

/** Amounts are USDC base units. */
export type BuyerSettings = ReturnType<typeof readBuyerSettings>

/**
 * Reads the environment of `tollkeeper mcp`; packages/runtime/variables.ts says what each variable means.
 *
 * @throws {ConfigError} It names the variable, what was expected, and what came unless that is a secret.
 */
export function readBuyerSettings(env: Environment) {
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
    /** The catalogue that is searched. */
    discoveryUrl: readVariable(env, 'DISCOVERY_URL') ?? gatewayUrl,
    /** The token that clients over HTTP send. */
    token: readVariable(env, 'MCP_TOKEN'),
  }
}
