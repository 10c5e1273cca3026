/** Payments to one provider, all at the same price. */
export type Purchase = {
  provider: string
  /** USDC base units. */
  price: bigint
  count: number
}

export type Plan = {
  micropayments: [many: Purchase, some: Purchase]
  highValue: Purchase
  /**
   * One buyer's requests on a tab. The fee of each price is a whole number of base units. So it makes no difference that the fee is
   * rounded per line and not per request.
   */
  tab: Purchase[]
}

/** Number of payments to one provider that reach the count trigger. */
export const countThreshold = 100

/**
 * Prices on the tab. After 400 requests at each price, the tab is below four fifths of a new buyer's credit, at which the keeper
 * would close it.
 */
const tabPrices = {
  Dictionary: 100n,
  Geocoder: 200n,
  'Exchange Rates': 300n,
  Translator: 400n,
  'Image Tags': 900n,
}
const requestsEach = 400

/**
 * Splits `micropayments` over two providers. Adds one high-value payment to a third provider, and 2,000 requests on a tab to five
 * others.
 *
 * The default, 120, gives 100 × 0.005 USDC, which reach the count trigger, and 20 × 0.06 USDC, which reach the amount trigger.
 */
export function planPayments(micropayments: number): Plan {
  const some = Math.min(20, Math.floor(micropayments / 6))
  return {
    micropayments: [
      { provider: 'Micro Weather', price: 5_000n, count: micropayments - some },
      { provider: 'City Maps', price: 60_000n, count: some },
    ],
    highValue: { provider: 'Deep Research', price: 12_000_000n, count: 1 },
    tab: Object.entries(tabPrices).map(([provider, price]) => ({ provider, price, count: requestsEach })),
  }
}
