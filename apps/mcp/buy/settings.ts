import { homedir } from 'node:os'
import { join } from 'node:path'
import { loadNetworksFile } from '@tollkeeper/chain/networksFile'
import { type Environment, readVariable, requireVariable } from '@tollkeeper/runtime/env'

/** The settings of `tollkeeper mcp`. Amounts are USDC base units. */
export type BuyerSettings = ReturnType<typeof readBuyerSettings>

/**
 * Reads the environment of `tollkeeper mcp`. packages/runtime/variables.ts describes the variables.
 *
 * @throws {ConfigError} that names the variable, the expected value and, unless the variable is a secret, the received value.
 */
export function readBuyerSettings(env: Environment) {
  loadNetworksFile(env)
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
    /** The catalog to search. */
    discoveryUrl: readVariable(env, 'DISCOVERY_URL') ?? gatewayUrl,
    /** The token that clients must send over HTTP. */
    token: readVariable(env, 'MCP_TOKEN'),
  }
}
