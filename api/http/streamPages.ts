/** A part of an answer, and where the next one begins; null: it was the last. */
export type TextPage<Position> = { text: string; next: Position | null }

/**
 * Writes pages as the client reads them, so a slow client holds two pages in memory, not the whole answer. The next page is
 * read while one is written. A page that can't be read cuts the connection, so no client takes a part for the whole.
 *
 * @param first read before the headers, so that its failure still gets an honest status.
 */
export function streamPages<Position>(
  first: TextPage<Position>,
  readPage: (after: Position) => Promise<TextPage<Position>>,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder()
  let coming: Promise<TextPage<Position>> | null = Promise.resolve(first)
  return new ReadableStream({
    async pull(controller) {
      // A page may be empty of results: the client waits for one that isn't.
      for (let isWritten = false; !isWritten; ) {
        if (coming === null) return controller.close()
        const { text, next }: TextPage<Position> = await coming
        coming = next === null ? null : readPage(next)
        // It is awaited only after the client has taken this page; this keeps an earlier failure from being unhandled.
        coming?.catch(() => {})
        isWritten = text !== ''
        if (isWritten) controller.enqueue(encoder.encode(text))
      }
    },
  })
}
