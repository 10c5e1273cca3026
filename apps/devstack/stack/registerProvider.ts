import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import {
  createProviderClient,
  registerProvider as register,
} from '@tollkeeper/sdk/provider/createProviderClient'
import type { NewEndpoint } from '@tollkeeper/sdk/provider/generated/types'
import type { Address } from 'viem'

export type RegisteredProvider = {
  providerId: string
  /** The API key, which the gateway shows only once. */
  apiKey: string
  walletId: string
  /** The endpoints' ids, in the requested order. */
  endpointIds: string[]
}

/** Registers a provider over HTTP, as anyone would: the provider, then its wallet and endpoints with its new API key. */
export async function registerProvider({
  gatewayUrl,
  name,
  network,
  address,
  endpoints,
}: {
  gatewayUrl: string
  name: string
  network: NetworkName
  address: Address
  endpoints: readonly { url: string; method?: NewEndpoint['method']; usdcPerUnit: string }[]
}): Promise<RegisteredProvider> {
  const { providerId, apiKey } = await register({ gatewayUrl }, { name })
  const client = createProviderClient({ gatewayUrl, providerId, apiKey })
  const { walletId } = await client.wallets.create({ network, address })
  const endpointIds: string[] = []
  for (const { url, method = 'GET', usdcPerUnit } of endpoints) {
    const { endpointId } = await client.endpoints.create({ url, method, walletId, pricing: { usdcPerUnit } })
    endpointIds.push(endpointId)
  }
  return { providerId, apiKey, walletId, endpointIds }
}
