import type { PaymentPolicy, x402Client } from '@x402/core/client'
import type { PaymentPayloadResult, PaymentRequirements, SchemeNetworkClient } from '@x402/core/types'
import type { Address } from 'viem'
import { canonicalUrl } from '../client/checkChallenge.ts'
import { ChallengeRefusedError } from '../client/errors.ts'
import { isTabSplit, type TabOffer } from '../client/offers.ts'
import { askGateway } from '../client/outcome.ts'
import { type Payer, type PayerWallet, signerOf } from '../client/payer.ts'
import { createTabGateway } from '../client/tabGateway.ts'
import { createTabs, type OpenTab, type TabOptions, type Tabs } from '../client/tabs.ts'
import { tabSettlement } from '../protocol/deployments.ts'
import { textOf } from '../protocol/fields.ts'
import { type Network, networks } from '../protocol/networks.ts'
import type { TabPayload } from '../protocol/tab.ts'
import { readTabResponse, type TabRequirements } from '../protocol/x402.ts'

/** Options of {@link TabEvmScheme}. */
export type TabSchemeOptions = TabOptions & {
  /**
   * Public URL of the gateway whose tabs are used. Default: tabs of all gateways are used, but `close()` calls no gateway, because a URL that only
   * a seller names can't be trusted.
   */
  gatewayUrl?: string
  /** USDC's address, if the network's table has none (`localhost`). */
  usdcAddress?: Address
  /** The `fetch` for calls to `gatewayUrl`. Default: the global `fetch`. */
  fetch?: typeof globalThis.fetch
  /** Logs in detail through `console.debug`. Default false. */
  debug?: boolean
}

type Hooks = NonNullable<SchemeNetworkClient['schemeHooks']>
type Response = Parameters<NonNullable<Hooks['onPaymentResponse']>>[0]

/** Time in ms during which the client pays a gateway's sellers in other ways after the gateway has refused tabs. */
const suspensionMs = 300_000

/**
 * The scheme `tab` for clients of `@x402/core`. It buys from Tollkeeper's sellers on a tab: the newest signature covers everything that was bought
 * through a gateway. Use it together with `ExactEvmScheme`. {@link keepTabs} registers it.
 *
 * The scheme accepts only the token and the payee that are in the tables of this SDK version. The `x402Client`'s `spendControls` limit the amount.
 *
 * @example
 * import { TabEvmScheme } from '@tollkeeper/sdk/x402'
 * import { x402Client } from '@x402/core/client'
 * import { privateKeyToAccount } from 'viem/accounts'
 *
 * const tabs = new TabEvmScheme(privateKeyToAccount(`0x${'11'.repeat(32)}`))
 * export const client = new x402Client().register('eip155:*', tabs).registerPolicy(tabs.preferTabs)
 * console.log(tabs.scheme, await tabs.tabs())
 * // tab []
 */
export class TabEvmScheme implements SchemeNetworkClient {
  readonly scheme = 'tab'
  readonly schemeHooks: Hooks
  /** Moves usable tab offers to the front, and removes tab offers that can't be used. */
  readonly preferTabs: PaymentPolicy
  readonly #tabs: Tabs
  readonly #options: TabSchemeOptions
  readonly #suspended = new Map<string, number>()

  /**
   * @param account a viem account, a wallet client with an account, or another signer of typed data.
   * @throws {TypeError} for an account that can't sign.
   */
  constructor(account: Payer | PayerWallet, options: TabSchemeOptions = {}) {
    const { gatewayUrl, fetch = globalThis.fetch.bind(globalThis) } = options
    const log = options.debug ? (message: string) => console.debug(`[tollkeeper] ${message}`) : () => {}
    this.#options = options
    this.#tabs = createTabs({
      ...options,
      payer: signerOf({ account }),
      log,
      gateway: gatewayUrl === undefined ? undefined : createTabGateway(fetch, gatewayUrl),
    })
    this.schemeHooks = { onPaymentResponse: async (response) => this.#onResponse(response) }
    this.preferTabs = (_, requirements) => this.#prefer(requirements)
  }

  /** Signs the next state of a tab. @throws {ChallengeRefusedError} if the offer can't be used, or if the payer doesn't sign. */
  async createPaymentPayload(
    x402Version: number,
    requirements: PaymentRequirements,
  ): Promise<PaymentPayloadResult> {
    const offer = this.#read(requirements)
    if (x402Version !== 2 || !offer) throw new ChallengeRefusedError('the tab offer can’t be used')
    const payload = await this.#tabs.sign(offer)
    // Some transports never report the outcome of a request, and `close` would wait for it forever. So count the outcome as unknown now.
    this.#tabs.finalize(payload, 'unknown')
    return { x402Version, payload }
  }

  /** Returns the network's USDC, in the form that `spendControls` needs to limit amounts in USD. */
  findDefaultAsset(
    asset: string,
    network: string,
  ): ReturnType<NonNullable<SchemeNetworkClient['findDefaultAsset']>> {
    const known = networkOf(network)
    if (!known || asset.toLowerCase() !== this.#usdcOf(known)) return undefined
    return { asset, decimals: 6, symbol: 'USDC' }
  }

  /** Returns the open tabs, each with its gateway and its amounts. */
  tabs(): Promise<OpenTab[]> {
    return this.#tabs.list()
  }

  /** Closes all tabs. Asks only `gatewayUrl` to close its tabs. Other gateways close a tab by themselves after minutes without a request. */
  close(): Promise<void> {
    return this.#tabs.close()
  }

  #usdcOf(network: Network): string | undefined {
    return (this.#options.usdcAddress ?? network.usdc)?.toLowerCase()
  }

  #prefer(requirements: PaymentRequirements[]): PaymentRequirements[] {
    const rank = (one: PaymentRequirements) => {
      if (one.scheme !== 'tab') return 1
      const { issuer } = one.extra
      return (this.#suspended.get(textOf(issuer)) ?? 0) > Date.now() ? 2 : 0
    }
    return requirements
      .filter((one) => one.scheme !== 'tab' || this.#read(one))
      .sort((a, b) => rank(a) - rank(b))
  }

  #read(requirements: PaymentRequirements): TabOffer | undefined {
    const network = networkOf(requirements.network)
    const usdc = network && this.#usdcOf(network)
    if (!network || !usdc) return undefined
    return readOffer(requirements, { network, usdc: usdc as Address }, this.#options.gatewayUrl)
  }

  /** Returns whether the gateway confirms that it doesn't charge a request that a seller refused. Returns true if there is no gateway to ask. */
  async #isFree(payload: TabPayload): Promise<boolean> {
    const { gatewayUrl, fetch = globalThis.fetch.bind(globalThis) } = this.#options
    if (gatewayUrl === undefined) return true
    const word = await askGateway(
      fetch,
      gatewayUrl,
      { tab: payload, payloads: [] },
      new AbortController().signal,
    )
    return word === 'absent' || word === 'not_charged'
  }

  async #onResponse({ paymentPayload, requirements, settleResponse, paymentRequired }: Response) {
    const payload = paymentPayload.payload as TabPayload
    if (settleResponse?.success) {
      const charged = /^\d{1,20}$/.test(textOf(settleResponse.amount)) ? settleResponse.amount : undefined
      this.#tabs.finalize(payload, { charged: BigInt(charged ?? requirements.amount) })
      const response = readTabResponse(settleResponse)
      if (response) this.#tabs.acknowledge(response, payload)
      return undefined
    }
    if (!paymentRequired) return undefined
    this.#tabs.finalize(payload, { charged: 0n })
    const { accepts } = paymentRequired
    const error = textOf(paymentRequired.error)
    const isOff = error === 'tabs_off' || error === 'tab_limit_exceeded'
    if (isOff) this.#suspended.set(textOf(requirements.extra.issuer), Date.now() + suspensionMs)
    else if (!error.startsWith('tab_')) return undefined
    if (!(await this.#isFree(payload))) return undefined
    if (!isOff && !(await this.#tabs.revise(payload, BigInt(requirements.amount)))) return undefined
    // After `revise`, the gateway can no longer accept the refused state. Ask whether it had accepted that state before.
    if (!isOff && !(await this.#isFree(payload))) return undefined
    if (isOff && !accepts.some(({ scheme }) => scheme !== 'tab')) return undefined
    return { recovered: true } as const
  }
}

/**
 * Makes a client of `@x402/core` use tabs wherever a seller offers one, also in combination with `ExactEvmScheme`. This works for `@x402/fetch`,
 * `@x402/axios`, MCP and all other clients that are built on `@x402/core`.
 *
 * @param client an `x402Client`.
 * @param account a viem account, a wallet client with an account, or another signer of typed data.
 * @returns the scheme, with which you can list and close open tabs.
 * @throws {TypeError} for an account that can't sign.
 * @example
 * import { keepTabs } from '@tollkeeper/sdk/x402'
 * import { x402Client } from '@x402/core/client'
 * import { ExactEvmScheme } from '@x402/evm/exact/client'
 * import { wrapFetchWithPayment } from '@x402/fetch'
 * import { privateKeyToAccount } from 'viem/accounts'
 *
 * const account = privateKeyToAccount(`0x${'11'.repeat(32)}`)
 * const client = new x402Client().register('eip155:*', new ExactEvmScheme(account))
 * const tabs = keepTabs(client, account, { gatewayUrl: 'https://gateway.example' })
 * export const payingFetch = wrapFetchWithPayment(fetch, client)
 * console.log(await tabs.tabs())
 * // []
 */
export function keepTabs(
  client: Pick<x402Client, 'register' | 'registerPolicy'>,
  account: Payer | PayerWallet,
  options?: TabSchemeOptions,
): TabEvmScheme {
  const scheme = new TabEvmScheme(account, options)
  client.register('eip155:*', scheme)
  client.registerPolicy(scheme.preferTabs)
  return scheme
}

function networkOf(caip2: string): Network | undefined {
  return Object.values(networks).find((network) => network.caip2 === caip2)
}

/** Reads a tab offer. Only the price, the payee and the gateway are taken from it. */
function readOffer(
  requirements: PaymentRequirements,
  { network, usdc }: { network: Network; usdc: Address },
  gatewayUrl: string | undefined,
): TabOffer | undefined {
  const { scheme, amount, asset, payTo, maxTimeoutSeconds } = requirements
  const { issuer, macaroon, split, platform, rewardShare } = requirements.extra as Partial<
    TabRequirements['extra']
  >
  const isOurs =
    scheme === 'tab' &&
    payTo.toLowerCase() === tabSettlement &&
    asset.toLowerCase() === usdc &&
    /^[1-9]\d{0,14}$/.test(amount) &&
    Number.isSafeInteger(maxTimeoutSeconds) &&
    maxTimeoutSeconds > 0
  if (!isOurs || typeof issuer !== 'string' || typeof macaroon !== 'string') return undefined
  if (gatewayUrl !== undefined && canonicalUrl(issuer) !== canonicalUrl(gatewayUrl)) return undefined
  if (typeof split !== 'string' || !/^0x[0-9a-f]{64}$/.test(split) || !isTabSplit(BigInt(split)))
    return undefined
  if (typeof platform !== 'string' || !/^0x[0-9a-f]{40}$/.test(platform)) return undefined
  if (
    typeof rewardShare !== 'number' ||
    !(rewardShare >= 0 && rewardShare <= 10_000) ||
    rewardShare % 1 !== 0
  )
    return undefined
  return {
    issuer,
    network,
    usdc,
    macaroon,
    platform,
    rewardShare,
    maxTimeoutSeconds,
    price: BigInt(amount),
    split: BigInt(split),
  }
}
