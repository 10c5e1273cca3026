/**
 * Returns all items of an iteration, like `Array.fromAsync`, which the library that we compile with doesn't have yet.
 */
export async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = []
  for await (const item of items) found.push(item)
  return found
}
