/** Splits a list into parts of at most `size`. */
export function chunk<Item>(items: readonly Item[], size: number): Item[][] {
  const parts: Item[][] = []
  for (let start = 0; start < items.length; start += size) parts.push(items.slice(start, start + size))
  return parts
}

/** Calls `act` with each item, in groups of at most `limit` that run concurrently. */
export async function mapLimited<Item, Result>(
  items: readonly Item[],
  limit: number,
  act: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  for (const part of chunk(items, limit)) results.push(...(await Promise.all(part.map(act))))
  return results
}
