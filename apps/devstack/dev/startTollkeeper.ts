import { isPortFree, loopback, reservePort } from '@tollkeeper/runtime/port'
import { networkVariable } from '@tollkeeper/runtime/variables'
import { type Client, createClient } from '@tollkeeper/sdk/client/createClient'
import type { Address, Hex } from 'viem'
import { generatePrivateKey, privateKeyToAddress } from 'viem/accounts'
import { devAccount, devPrivateKey } from '../chain/accounts.ts'
import { registerProvider } from '../stack/registerProvider.ts'
import { type PlayedNetwork, type Stack, type StackOptions, startStack } from '../stack/stack.ts'
import { serveControls } from './controlServer.ts'
import { type Controls, createControls } from './controls.ts'
import { followChain } from './reorg.ts'
import { type RpcFaults, startRpcFaults } from './rpcFaults.ts'

export type TollkeeperOptions = Pick<StackOptions, 'databaseUrl' | 'signal' | 'logFolder' | 'onDeath'> & {
  /** Port of your API on loopback. Default: a free one. */
  port?: number | undefined
  /** Price of a request to any path of the API, in decimal USDC. Default `0.01`. */
  price?: string | undefined
  /**
   * Network that the chain simulates. Default `base-sepolia`. The chain has that network's chain id, USDC address and EIP-712
   * domain, so clients and sellers that know the network need no option.
   */
  network?: PlayedNetwork | undefined
  /** Seconds after which a payment settles automatically; `settle` doesn't wait for that. Default 3,600, as in production. */
  settleAfterSeconds?: number | undefined
}

export type Buyer = { address: Address; privateKey: Hex; client: Client }

/** A gateway with everything that it needs, and a registered provider. You start the provider's API yourself. */
export type Tollkeeper = Controls & {
  gatewayUrl: string
  /** URL for x402 sellers: `/verify`, `/settle`, `/supported`. */
  facilitatorUrl: string
  controlUrl: string
  /** The chain's own URL. `failRpc` doesn't affect it. */
  rpcUrl: string
  network: PlayedNetwork
  usdcAddress: Address
  providerId: string
  providerApiKey: string
  /** The wallet that is paid. */
  providerAddress: Address
  /** The port on 127.0.0.1 on which the API must listen. */
  port: number
  /** Origin of the API. Its endpoints are registered under this origin. */
  apiUrl: string
  /** The values of this object as environment variables for a process. */
  env: Record<string, string>
  /** A buyer with 1,000 USDC. */
  buyer: Buyer
  /** @param usdc its balance, decimal; default 1,000 */
  createBuyer: (usdc?: string) => Promise<Buyer>
  close: () => Promise<void>
  [Symbol.asyncDispose]: () => Promise<void>
}

const accounts = { provider: 3, buyer: 10 }
const mining = { blockTimeMs: 1_000, atOnce: true }
const buyerFunds = '1000'

/**
 * Starts a local chain with the real USDC, Postgres, gateway, keeper and indexer on free ports, so that a test can pay an API with real signatures.
 * Several test files can each start an environment concurrently.
 *
 * @example
 * await using tollkeeper = await startTollkeeper()
 * const server = startMyApi(tollkeeper.env) // requirePayment({ gatewayUrl: env.GATEWAY_URL, … }), on env.PORT
 * const { paymentId } = await tollkeeper.buyer.client.request(`${tollkeeper.apiUrl}/weather`)
 * const { payments } = await tollkeeper.settle() // { [paymentId]: 'settled' }
 */
export async function startTollkeeper(options: TollkeeperOptions = {}): Promise<Tollkeeper> {
  if (options.port !== undefined && !(await isPortFree(options.port))) {
    throw new Error(`port ${options.port} is taken: choose another one, or omit it to use a free one`)
  }
  const port = options.port ?? (await reservePort())
  const undo: (() => Promise<unknown>)[] = []
  const close = async () => {
    for (let step = undo.pop(); step; step = undo.pop()) await step()
  }
  try {
    return await bringUp(options, port, undo, close)
  } catch (error) {
    await close()
    throw error
  }
}

async function bringUp(
  { price = '0.01', network = 'base-sepolia', settleAfterSeconds = 3_600, ...own }: TollkeeperOptions,
  port: number,
  undo: (() => Promise<unknown>)[],
  close: () => Promise<void>,
): Promise<Tollkeeper> {
  const triggers = { TRIGGER_TIME_SECONDS: String(settleAfterSeconds) }
  let faults: RpcFaults | undefined
  const stack = await startStack({
    ...own,
    fastPostgres: true,
    chain: { ...mining, network, baseFeePerGas: 50_000n },
    rpcUrlOf: async (chain) => {
      faults = await startRpcFaults(chain.url)
      undo.push(faults.close)
      return faults.url
    },
    // A test sends all requests from one address, so rate limits are off. The api also needs the triggers, for its estimates.
    env: { api: { RATE_LIMITS: 'off', ...triggers }, keeper: { KEEPER_POLL_MS: '100', ...triggers } },
  })
  undo.push(() => stack.close())
  const usdc = stack.chain.deployments[network]?.usdc
  if (faults === undefined || usdc === undefined) throw new Error('the chain has no USDC')

  const address = devAccount(accounts.provider).address
  const apiUrl = `http://${loopback}:${port}`
  const provider = await registerProvider({
    gatewayUrl: stack.api.url,
    name: 'My API',
    network,
    address,
    endpoints: [{ url: `${apiUrl}/*`, method: '*', usdcPerUnit: price }],
  })
  const newBuyer = async (privateKey: Hex, amount: string): Promise<Buyer> => {
    const buyer = privateKeyToAddress(privateKey)
    await controls.fund(buyer, amount)
    const wallet = { network, usdcAddress: usdc, walletPrivateKey: privateKey }
    return {
      address: buyer,
      privateKey,
      client: createClient({
        gatewayUrl: stack.api.url,
        timeout: 60_000,
        limits: { perPayment: '100' },
        ...wallet,
      }),
    }
  }

  const reorgs = followChain(stack.chain, mining)
  undo.push(async () => reorgs.stop())
  const wallets = {
    buyer: devAccount(accounts.buyer).address,
    provider: address,
    platform: stack.platformWallet,
  }
  const { controls, close: closeControls } = createControls({ stack, reorgs, faults, usdc, wallets })
  undo.push(closeControls)
  const server = await serveControls(controls)
  undo.push(server.close)
  const controlUrl = `http://${loopback}:${server.port}`
  return {
    ...controls,
    gatewayUrl: stack.api.url,
    facilitatorUrl: stack.keeper.url,
    controlUrl,
    rpcUrl: stack.chain.url,
    network,
    usdcAddress: usdc,
    providerId: provider.providerId,
    providerApiKey: provider.apiKey,
    providerAddress: address,
    port,
    apiUrl,
    env: {
      ...environmentOf(stack, usdc),
      PROVIDER_ID: provider.providerId,
      PROVIDER_API_KEY: provider.apiKey,
      PORT: String(port),
      PROVIDER_PORT: String(port),
      PRICE_USDC: price,
      CONTROL_URL: controlUrl,
    },
    buyer: await newBuyer(devPrivateKey(accounts.buyer), buyerFunds),
    createBuyer: (amount = buyerFunds) => newBuyer(generatePrivateKey(), amount),
    close,
    [Symbol.asyncDispose]: close,
  }
}

function environmentOf({ api, keeper, chain, env }: Stack, usdc: Address): Record<string, string> {
  return {
    GATEWAY_URL: api.url,
    FACILITATOR_URL: keeper.url,
    NETWORK: chain.network,
    [networkVariable('RPC_URL', chain.network)]: chain.url,
    // Don't use the values of a production environment, which belong to the real network.
    DEPLOYMENTS_FILE: env.DEPLOYMENTS_FILE ?? '',
    USDC_ADDRESS: usdc,
    PAY_TO: devAccount(accounts.provider).address,
    WALLET_PRIVATE_KEY: devPrivateKey(accounts.buyer),
  }
}
