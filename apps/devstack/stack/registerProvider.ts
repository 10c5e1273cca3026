import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import type { Address } from 'viem'

export type RegisteredProvider = {
  providerId: string
  /** Shown once, here. */
  apiKey: string
  walletId: string
  /** In the order asked for. */
  endpointIds: string[]
}

/** Registers a provider as anybody would: over HTTP, its wallet and endpoints with its new key. */
export async function registerProvider(options: {
  gatewayUrl: string
  name: string
  network: NetworkName
  address: Address
  endpoints: readonly { url: string; method?: string; usdcPerUnit: string }[]
}): Promise<RegisteredProvider> {
  const post = async (path: string, body: unknown, apiKey?: string): Promise<Record<string, string>> => {
    const response = await fetch(new URL(path, options.gatewayUrl), {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(apiKey && { authorization: `Bearer ${apiKey}` }) },
      body: JSON.stringify(body),
    })
    if (response.status !== 201) {
      throw new Error(`POST ${path} answered ${response.status}: ${await response.text()}`)
    }
    return (await response.json()) as Record<string, string>
  }
  const { providerId = '', apiKey = '' } = await post('/providers', { name: options.name })
  const { network, address } = options
  const { walletId = '' } = await post(`/providers/${providerId}/wallets`, { network, address }, apiKey)
  const endpointIds: string[] = []
  for (const { url, method = 'GET', usdcPerUnit } of options.endpoints) {
    const body = { url, method, walletId, pricing: { usdcPerUnit } }
    const { endpointId = '' } = await post(`/providers/${providerId}/endpoints`, body, apiKey)
    endpointIds.push(endpointId)
  }
  return { providerId, apiKey, walletId, endpointIds }
}
