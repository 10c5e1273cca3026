/** The smallest of some numbers, as Math.min for bigints. */
export function smallest(first: bigint, ...others: bigint[]): bigint {
  let found = first
  for (const other of others) if (other < found) found = other
  return found
}

/** The largest of some numbers, as Math.max for bigints. */
export function largest(first: bigint, ...others: bigint[]): bigint {
  let found = first
  for (const other of others) if (other > found) found = other
  return found
}
