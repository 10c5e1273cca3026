export type Fees = { maxFeePerGas: bigint; maxPriorityFeePerGas: bigint }

/** Nodes replace a transaction only if both fields increase by this percentage (geth's `--txpool.pricebump`). */
const requiredBump = 10n
const ourBump = 13n

function raise(value: bigint, percent: bigint): bigint {
  return (value * (100n + percent) + 99n) / 100n
}

/** Returns the fees of a first transaction. They permit the base fee to double before the transaction is mined. */
export function initialFees(baseFeePerGas: bigint, priorityFee: bigint, maxFeeCap: bigint): Fees {
  const wanted = baseFeePerGas * 2n + priorityFee
  const maxFeePerGas = wanted < maxFeeCap ? wanted : maxFeeCap
  return { maxFeePerGas, maxPriorityFeePerGas: priorityFee < maxFeePerGas ? priorityFee : maxFeePerGas }
}

/**
 * Returns the price that a transaction pays per gas unit at this base fee, which is the value of the GASPRICE opcode; undefined
 * if the transaction can't be mined.
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
 * Returns the fees of a replacement: both fields exceed those of the stored attempt and aren't below the current fees.
 *
 * @returns null if nodes require more than the cap permits; the caller then sends the stored attempt again.
 */
export function bumpFees(stored: Fees, current: Fees, maxFeeCap: bigint): Fees | null {
  const bump = (previous: bigint, now: bigint) => {
    // Add at least 1, because 10% of 0 is no increase.
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
