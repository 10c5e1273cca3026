import { adviseOnPrice } from '@tollkeeper/chain/priceAdvice'
import type { GatewaySettings } from '../http/settings.ts'
import type { GatewayNetworks } from './networks.ts'

/** Maximum time in ms for which the registration of a price waits for a slow node. */
const patienceMs = 1_000

type PriceAdviceContext = {
  networks: GatewayNetworks
  settings: Pick<GatewaySettings, 'feeSchedule' | 'tabs'>
}

/**
 * Warns about a price whose fee doesn't pay for its gas on one of the networks that it can be paid on.
 *
 * @param price USDC base units.
 * @returns null if the fee covers the gas everywhere, or if a network's gas price can't be read in time.
 */
export async function adviseOnEndpoint(
  { networks, settings }: PriceAdviceContext,
  price: bigint,
  chainIds: readonly number[],
): Promise<string | null> {
  const advices = chainIds.map(async (chainId) => {
    const { served, meter } = networks.ofChain(chainId)
    const { network } = served
    if (network.testnet) return null
    const prices = await meter.read()
    return adviseOnPrice({
      price,
      network,
      prices,
      schedule: settings.feeSchedule,
      hasTabs: settings.tabs !== null,
    })
  })
  const inTime = new Promise<null>((resolve) => setTimeout(resolve, patienceMs, null).unref())
  const first = Promise.all(advices).then((found) => found.find((advice) => advice !== null) ?? null)
  return Promise.race([first.catch(() => null), inTime])
}
