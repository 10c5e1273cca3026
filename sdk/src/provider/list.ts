/**
 * A list that the gateway serves in pages. `for await` yields items one by one, and requests the next page when a page is used up. After `break`, it
 * requests no more pages. Nothing is requested before the first item is needed.
 */
export type List<Item, Page> = AsyncIterable<Item> & {
  /** Reads one page. @param cursor the `cursor` of the previous page. Default: starts as the list's query says. */
  page(cursor?: string | null): Promise<Page>
  /** Yields all pages in order. */
  pages(): AsyncIterable<Page>
}

/** How to read the items of a page, and the cursor of the next page. */
export type PageShape<Item, Page> = {
  items: (page: Page) => readonly Item[]
  /** Cursor of the next page. Null or undefined after the last page. */
  next: (page: Page) => string | null | undefined
  /** The query field for the cursor. */
  position: 'cursor' | 'offset'
}

export function createList<Item, Page>(
  { items, next }: Pick<PageShape<Item, Page>, 'items' | 'next'>,
  readPage: (cursor: string | undefined) => Promise<Page>,
): List<Item, Page> {
  async function* pages(): AsyncGenerator<Page, void, undefined> {
    let cursor: string | undefined
    do {
      const page: Page = await readPage(cursor)
      yield page
      const following = next(page) ?? undefined
      // A page whose next cursor is its own would be requested forever.
      cursor = following === cursor ? undefined : following
    } while (cursor !== undefined)
  }

  return {
    page: (cursor) => readPage(cursor ?? undefined),
    pages,
    async *[Symbol.asyncIterator]() {
      for await (const page of pages()) yield* items(page)
    },
  }
}
