/**
 * A list that the gateway serves in pages. `for await` yields items one by one. It requests a page only when the page's first item is needed, and
 * requests no more pages after `break`.
 */
export type List<Item, Page> = AsyncIterable<Item> & {
  /** Reads one page. @param cursor the `cursor` of the previous page. Default: the start that the list's query selects. */
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
      // If a page's next cursor equals the page's own cursor, end the list. Otherwise the page would be requested forever.
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
