import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { NetworkName } from '@tollkeeper/sdk/protocol/networks'
import { toolResource } from '@tollkeeper/sdk/protocol/toolResource'
import { type GatewayFlags, ownPath, request } from '../../cli/provider/gateway.ts'

export type RegisteredTool = { name: string; description?: string | undefined; price: string }

type Endpoint = {
  endpointId: string
  url: string
  pricing: { usdcPerUnit: string }
  serverUrl: string | null
  disabledAt: string | null
}

/** Maximum length of a description at the gateway. */
const maxDescription = 500

/**
 * Registers each sold tool as an endpoint. If a tool is already registered, updates its price, and the server's URL if one is
 * given. An endpoint that the provider disabled stays disabled.
 *
 * @throws {CliError} with the gateway's code.
 */
export async function registerTools(
  flags: GatewayFlags & {
    server?: string | undefined
    serverUrl?: string | undefined
    network?: NetworkName | undefined
  },
  tools: readonly RegisteredTool[],
): Promise<void> {
  const path = ownPath(flags, 'endpoints')
  const paidTo = await choosePayee(flags)
  const { serverUrl } = flags
  const { endpoints } = (await request(flags, { method: 'GET', path })) as { endpoints: Endpoint[] }
  for (const { name, description, price } of tools) {
    const url = toolResource(name, flags.server)
    const pricing = { usdcPerUnit: price }
    const own = endpoints.filter((endpoint) => endpoint.url === url)
    const known = own.find(({ disabledAt }) => disabledAt === null) ?? own[0]
    if (known === undefined) {
      const body = {
        url,
        pricing,
        mimeType: 'application/json',
        ...(description && { description: description.slice(0, maxDescription) }),
        ...(serverUrl !== undefined && { serverUrl }),
        ...paidTo,
      }
      await request(flags, { path, body })
      continue
    }
    const change = {
      ...(parseUsdc(known.pricing.usdcPerUnit) !== parseUsdc(price) && { pricing }),
      ...(serverUrl !== undefined && known.serverUrl !== serverUrl && { serverUrl }),
    }
    if (Object.keys(change).length === 0) continue
    const to = ownPath(flags, 'endpoints', known.endpointId)
    await request(flags, { method: 'PATCH', path: to, headers: { 'if-match': '*' }, body: change })
  }
}

/**
 * Returns the network or wallet for a tool's payments: the requested network, or else the provider's only wallet. Returns neither
 * if there are several wallets; then the gateway chooses.
 */
async function choosePayee(
  flags: GatewayFlags & { network?: NetworkName | undefined },
): Promise<{ network?: string; walletId?: string }> {
  if (flags.network !== undefined) return { network: flags.network }
  const answer = await request(flags, { method: 'GET', path: ownPath(flags, 'wallets') })
  const { wallets } = answer as { wallets: { walletId: string; retiredAt: string | null }[] }
  const [first, ...others] = wallets.filter(({ retiredAt }) => retiredAt === null)
  return first !== undefined && others.length === 0 ? { walletId: first.walletId } : {}
}
