import { createResources, type ProviderResources } from './generated/resources.ts'
import type { NewProvider, ProviderWithKey } from './generated/types.ts'
import { type Call, createTransport, type TransportOptions } from './transport.ts'

/** Options of {@link createProviderClient}. */
export type ProviderClientOptions = TransportOptions & {
  /** `prov_…` */
  providerId: string
  /** `tk_…`. A read-only key allows only reads. */
  apiKey: string | undefined
}

/** A provider's client for the gateway's API. It has one property for each kind of resource, and `request` for any route. */
export type ProviderClient = ProviderResources & {
  readonly providerId: string
  /**
   * Calls any route of the gateway, for example one that this version of the SDK doesn't know. `path` is relative to the gateway's URL.
   *
   * @throws {GatewayError}
   */
  request<Answer = unknown>(call: Call): Promise<Answer>
}

/**
 * Creates a client for one provider of the gateway's API. It sends nothing until you call a method. Each method throws a {@link GatewayError} with a
 * stable `code` if the call fails.
 *
 * If the gateway rate-limits a call (429), the client retries it up to `maxRetries` times within `timeout`. After any other temporary failure, it
 * retries only idempotent calls: reads, `PUT`, `DELETE`, and refunds with the same signature. Amounts are text, as in the API: `…_usdc` in USDC,
 * `…Usdc` in base units.
 *
 * @example
 * import { createProviderClient } from '@tollkeeper/sdk/provider'
 *
 * const client = createProviderClient({
 *   gatewayUrl: 'https://gateway.example',
 *   providerId: 'prov_0f8fad5bd9cb469fa16570867728950e',
 *   apiKey: 'tk_00000000000000000000000000000000',
 *   fetch: async () => Response.json({ payments: [{ paymentId: 'pay_1', payment_status: 'settled' }], cursor: null }),
 * })
 * for await (const { paymentId, payment_status } of client.payments.list({ status: 'settled' })) {
 *   console.log(paymentId, payment_status)
 * }
 * // pay_1 settled
 */
export function createProviderClient({ providerId, ...options }: ProviderClientOptions): ProviderClient {
  if (!options.apiKey) throw new TypeError("apiKey: expected the provider's API key, tk_…, but it is missing")
  if (!providerId) throw new TypeError('providerId: expected prov_…, but it is missing')
  const transport = createTransport(options)
  return { ...createResources(transport, providerId), providerId, request: transport.json }
}

/** Options of {@link registerProvider}. */
export type RegisterProviderOptions = Omit<TransportOptions, 'apiKey'> & {
  /** The operator's token. Required if the gateway has `REGISTRATION=token`. */
  registrationToken?: string | undefined
}

/**
 * Registers a provider. The response contains the provider's first API key, which is never shown again.
 *
 * @throws {GatewayError} `registration_closed`; `unauthorized` if the gateway requires the operator's token and it is missing
 *
 * @example
 * import { createProviderClient, registerProvider } from '@tollkeeper/sdk/provider'
 *
 * // Registers a provider, and the wallet that receives its payments.
 * export async function register(gatewayUrl: string, name: string, address: string) {
 *   const { providerId, apiKey } = await registerProvider({ gatewayUrl }, { name })
 *   const client = createProviderClient({ gatewayUrl, providerId, apiKey })
 *   await client.wallets.create({ network: 'base', address })
 *   return client
 * }
 */
export function registerProvider(
  { registrationToken, ...options }: RegisterProviderOptions,
  provider: NewProvider,
): Promise<ProviderWithKey> {
  return createTransport(options).json({
    method: 'POST',
    path: '/providers',
    body: provider,
    ...(registrationToken && { headers: { 'registration-token': registrationToken } }),
  })
}
