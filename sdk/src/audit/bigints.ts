/** Returns the smallest of some bigints, like Math.min. */
export function smallest(first: bigint, ...others: bigint[]): bigint {
  let found = first
  for (const other of others) if (other < found) found = other
  return found
}

/** Returns the largest of some bigints, like Math.max. */
export function largest(first: bigint, ...others: bigint[]): bigint {
  let found = first
  for (const other of others) if (other > found) found = other
  return found
}
