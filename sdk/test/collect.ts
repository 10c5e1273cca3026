/**
 * Returns all items of an iteration, like `Array.fromAsync`, which TypeScript's `lib` setting of this project doesn't declare yet.
 */
export async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = []
  for await (const item of items) found.push(item)
  return found
}
