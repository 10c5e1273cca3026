import { setImmediate } from 'node:timers/promises'

/** A part of an answer. */
export type TextPage<Position> = {
  /** Formats the page. Called once, while the next page is being read. */
  write: () => string
  /** Position at which the next page begins; null: this is the last one. */
  next: Position | null
}

/**
 * Writes pages as the client reads them. So even for a slow client, this process holds two pages in memory instead of the whole answer. The
 * database reads the next page while the current page is formatted. If a page can't be read, the connection is cut, so that no client mistakes a
 * partial answer for a complete one.
 *
 * @param first the first page, which is read before the headers are sent, so that a failure still gets the right status.
 */
export function streamPages<Position>(
  first: TextPage<Position>,
  readPage: (after: Position) => Promise<TextPage<Position>>,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder()
  let coming: Promise<TextPage<Position>> | null = Promise.resolve(first)
  return new ReadableStream({
    async pull(controller) {
      // A page may be empty. The stream then continues with the next page until there is something to write.
      for (let isWritten = false; !isWritten; ) {
        if (coming === null) return controller.close()
        const { write, next }: TextPage<Position> = await coming
        coming = next === null ? null : readPage(next)
        // The next page is awaited only after the client has taken the current page. This handler prevents an unhandled rejection before that.
        coming?.catch(() => {})
        await querySent()
        const text = write()
        isWritten = text !== ''
        if (isWritten) controller.enqueue(encoder.encode(text))
      }
    },
  })
}

/**
 * Waits until the database driver has sent the queries that were made in this turn of the event loop. The driver does that two turns later at the
 * latest.
 */
async function querySent(): Promise<void> {
  await setImmediate()
  await setImmediate()
}
