import { setImmediate } from 'node:timers/promises'

/** A part of an answer. */
export type TextPage<Position> = {
  /** Formats it. Called once, while the next page is being read. */
  write: () => string
  /** Where the next page begins; null: this is the last one. */
  next: Position | null
}

/**
 * Writes pages as the client reads them, so a slow client holds two pages in memory, not the whole answer. The database reads the next
 * page while one is formatted. A page that can't be read cuts the connection, so no client takes a part for the whole.
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
        const { write, next }: TextPage<Position> = await coming
        coming = next === null ? null : readPage(next)
        // It is awaited only after the client has taken this page; this keeps an earlier failure from being unhandled.
        coming?.catch(() => {})
        await querySent()
        const text = write()
        isWritten = text !== ''
        if (isWritten) controller.enqueue(encoder.encode(text))
      }
    },
  })
}

/** Waits until the driver has sent the queries of this turn: it does so in the turn after the next one at the latest. */
async function querySent(): Promise<void> {
  await setImmediate()
  await setImmediate()
}
