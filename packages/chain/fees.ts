export type Fees = { maxFeePerGas: bigint; maxPriorityFeePerGas: bigint }

/** Nodes replace a transaction only if both fields rise by this much, in percent (geth's `--txpool.pricebump`). */
const requiredBump = 10n
const ourBump = 13n

function raise(value: bigint, percent: bigint): bigint {
  return (value * (100n + percent) + 99n) / 100n
}

/** The fees of a first transaction, with room for the base fee to double before it is mined. */
export function initialFees(baseFeePerGas: bigint, priorityFee: bigint, maxFeeCap: bigint): Fees {
  const wanted = baseFeePerGas * 2n + priorityFee
  const maxFeePerGas = wanted < maxFeeCap ? wanted : maxFeeCap
  return { maxFeePerGas, maxPriorityFeePerGas: priorityFee < maxFeePerGas ? priorityFee : maxFeePerGas }
}

/**
 * The price of a gas unit that a transaction will pay at this base fee, as the GASPRICE opcode shows it; undefined if it
 * can't be mined at all.
 */
export function priceAt(
  { maxFeePerGas, maxPriorityFeePerGas }: Fees,
  baseFeePerGas: bigint,
): bigint | undefined {
  if (baseFeePerGas > maxFeePerGas) return undefined
  const wanted = baseFeePerGas + maxPriorityFeePerGas
  return wanted < maxFeePerGas ? wanted : maxFeePerGas
}

/**
 * Fees of a replacement: both fields above the stored attempt's, and not below the current ones.
 *
 * @returns null if the cap doesn't allow what nodes require: then the stored attempt is sent again.
 */
export function bumpFees(stored: Fees, current: Fees, maxFeeCap: bigint): Fees | null {
  const bump = (previous: bigint, now: bigint) => {
    // A field of 0 must rise, too.
    const raised = greater(raise(previous, ourBump), previous + 1n)
    const wanted = greater(raised, now)
    const capped = wanted < maxFeeCap ? wanted : maxFeeCap
    return capped < raise(previous, requiredBump) || capped === previous ? null : capped
  }
  const maxFeePerGas = bump(stored.maxFeePerGas, current.maxFeePerGas)
  const maxPriorityFeePerGas = bump(stored.maxPriorityFeePerGas, current.maxPriorityFeePerGas)
  if (maxFeePerGas === null || maxPriorityFeePerGas === null) return null
  return { maxFeePerGas: greater(maxFeePerGas, maxPriorityFeePerGas), maxPriorityFeePerGas }
}

function greater(a: bigint, b: bigint): bigint {
  return a < b ? b : a
}
