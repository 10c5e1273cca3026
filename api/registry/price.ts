import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'

/** Returns a network's minimum price for a separate payment, in USDC base units: its own minimum, or a higher configured minimum. */
export function minimumPriceOn(
  { minimumPrices }: Pick<GatewaySettings, 'minimumPrices'>,
  network: Network,
): bigint {
  const configured = minimumPrices[network.name] ?? 0n
  return configured > network.minimumPrice ? configured : network.minimumPrice
}

/** Returns the minimum price on a network, in USDC base units. If the gateway sells on tabs, it is one base unit. */
export function leastPriceOn(
  settings: Pick<GatewaySettings, 'minimumPrices' | 'tabs'>,
  network: Network,
): bigint {
  return settings.tabs ? 1n : minimumPriceOn(settings, network)
}

export type PriceOptions = {
  /** USDC base units; undefined: the registered price. */
  asked: bigint | undefined
  /** USDC base units. */
  registered: bigint
  minimum: bigint
  /** Whether the provider itself asks. Only the provider may ask for less than the registered price. */
  isProvider: boolean
}

/**
 * Returns the price to pay, in USDC base units.
 *
 * @throws {Refusal} `price_below_registered`, `price_below_minimum`
 */
export function choosePrice({ asked, registered, minimum, isProvider }: PriceOptions): bigint {
  const price = asked ?? registered
  if (price < minimum) {
    throw new Refusal(
      'price_below_minimum',
      `The minimum price is ${formatUsdc(minimum)} USDC, got ${formatUsdc(price)}`,
    )
  }
  if (price < registered && !isProvider) {
    throw new Refusal(
      'price_below_registered',
      `The registered price is ${formatUsdc(registered)} USDC, got ${formatUsdc(price)}: a lower price needs the provider's API key`,
    )
  }
  return price
}
