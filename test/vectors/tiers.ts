// Copied by hand from the fee table (conformance 2.9). Nothing is computed here, so that a wrong formula
// can't agree with itself.

const row = (
  price: string,
  tier: string,
  feeAmount: string,
  effectiveRate: string,
  flatFeeAmount: string,
  /** The splitter's shares for provider and platform. With the flat fee, they are always 49:1. */
  shares: string,
) => ({
  price,
  tier,
  feeAmount,
  effectiveRate,
  flatFeeAmount,
  shares,
})

/** Returns the content of `test/vectors/tiers.json`. */
export function generateTiers() {
  return {
    about: 'Fee splits at and around every bound of the table, in USDC base units.',
    belowMinimum: ['0', '1', '4999'],
    tiers: [
      row('5000', 'ultra-micro', '500', '0.1', '100', '9:1'),
      row('9999', 'ultra-micro', '999', '0.099909', '199', '9:1'),
      row('10000', 'micropayment', '500', '0.05', '200', '19:1'),
      row('50000', 'micropayment', '2500', '0.05', '1000', '19:1'),
      row('50001', 'micropayment', '2500', '0.049999', '1000', '19:1'),
      row('999999', 'micropayment', '49999', '0.049999', '19999', '19:1'),
      row('1000000', 'standard', '80000', '0.08', '20000', '23:2'),
      row('9999999', 'standard', '349999', '0.034999', '199999', '9650000:349999'),
      row('10000000', 'large', '300000', '0.03', '200000', '97:3'),
      row('12000000', 'large', '350000', '0.029166', '240000', '233:7'),
      row('1000000000000', 'large', '25000050000', '0.025', '20000000000', '19499999:500001'),
    ],
  }
}
