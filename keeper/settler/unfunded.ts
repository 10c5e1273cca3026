/** The wallet can't pay for its batch. In wei; undefined where a node says so and not how much is missing. */
export class Unfunded extends Error {
  override name = 'Unfunded'
  readonly balance: bigint | undefined
  readonly needed: bigint | undefined

  constructor(balance?: bigint, needed?: bigint) {
    super(balance === undefined ? 'a node says so' : `the wallet has ${balance} wei and needs ${needed}`)
    this.balance = balance
    this.needed = needed
  }
}

/** @throws {Unfunded} if the balance is too small */
export function requireFunds(balance: bigint, needed: bigint): void {
  if (balance < needed) throw new Unfunded(balance, needed)
}
