import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import type { Network } from '@tollkeeper/sdk/protocol/networks'
import { Refusal } from '../http/refusal.ts'
import type { GatewaySettings } from '../http/settings.ts'

/** The least price that settles alone on a network, USDC base units: the network's own, or a higher configured one. */
export function minimumPriceOn(
  { minimumPrices }: Pick<GatewaySettings, 'minimumPrices'>,
  network: Network,
): bigint {
  const configured = minimumPrices[network.name] ?? 0n
  return configured > network.minimumPrice ? configured : network.minimumPrice
}

/** The least price on a network, USDC base units: with tabs, one base unit. */
export function leastPriceOn(
  settings: Pick<GatewaySettings, 'minimumPrices' | 'tabs'>,
  network: Network,
): bigint {
  return settings.tabs ? 1n : minimumPriceOn(settings, network)
}

export type PriceQuestion = {
  /** USDC base units; undefined: the registered one. */
  asked: bigint | undefined
  /** USDC base units. */
  registered: bigint
  minimum: bigint
  /** Only the provider itself may ask for less than it registered. */
  isProvider: boolean
}

/**
 * The price to pay, USDC base units.
 *
 * @throws {Refusal} `price_below_registered`, `price_below_minimum`
 */
export function choosePrice({ asked, registered, minimum, isProvider }: PriceQuestion): bigint {
  const price = asked ?? registered
  if (price < minimum) {
    throw new Refusal(
      'price_below_minimum',
      `The least price is ${formatUsdc(minimum)} USDC, got ${formatUsdc(price)}`,
    )
  }
  if (price < registered && !isProvider) {
    throw new Refusal(
      'price_below_registered',
      `${formatUsdc(registered)} USDC is registered, got ${formatUsdc(price)}: less needs the provider's API key`,
    )
  }
  return price
}
