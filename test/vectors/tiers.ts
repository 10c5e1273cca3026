// From DESIGN's table by hand: nothing is computed here, so that a wrong formula can't agree with itself.

const row = (
  price: string,
  tier: string,
  feeAmount: string,
  effectiveRate: string,
  flatFeeAmount: string,
) => ({
  price,
  tier,
  feeAmount,
  effectiveRate,
  flatFeeAmount,
})

/** What `test/vectors/tiers.json` holds. */
export function generateTiers() {
  return {
    about: 'Fee splits at and around every bound of the table, in USDC base units.',
    belowMinimum: ['0', '1', '4999'],
    tiers: [
      row('5000', 'ultra-micro', '500', '0.1', '100'),
      row('9999', 'ultra-micro', '999', '0.099909', '199'),
      row('10000', 'micropayment', '500', '0.05', '200'),
      row('50000', 'micropayment', '2500', '0.05', '1000'),
      row('999999', 'micropayment', '49999', '0.049999', '19999'),
      row('1000000', 'standard', '80000', '0.08', '20000'),
      row('9999999', 'standard', '349999', '0.034999', '199999'),
      row('10000000', 'large', '300000', '0.03', '200000'),
      row('12000000', 'large', '350000', '0.029166', '240000'),
      row('1000000000000', 'large', '25000050000', '0.025', '20000000000'),
    ],
  }
}
