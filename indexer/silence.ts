import type { Socket } from 'node:net'

/** The launcher's message to Ponder's process when Ponder has caught up. */
export const caughtUp = 'caught up'

const tickMs = 1_000
/** While it reads the past, Ponder lets a statement run for two minutes. */
let limitMs = 130_000

/** Runs in Ponder's process: shortens the limit once the launcher says that Ponder has caught up, since statements are short then. */
export function heedLauncher(): void {
  process.on('message', (message) => {
    if (message === caughtUp) limitMs = 8_000
  })
  // Listening mustn't keep the process alive.
  process.channel?.unref()
}

/** A node-postgres client, as its pool hands it to `onConnect`. */
type Client = {
  /** Whether it was asked nothing, or has answered all. */
  readyForQuery: boolean
  connection: { stream: Socket }
  once: (event: 'end', listener: () => void) => void
}

/**
 * Ends a connection whose server owes an answer and has sent nothing for too long. Ponder then connects again and repeats its
 * transaction. Otherwise a server that is gone without a word (a failover without a reset, a firewall that drops)
 * would leave the connections, and so the index, standing for hours.
 *
 * It counts time in ticks of this process, as the ledger's DatabaseSocket does, so a process that was stopped or busy
 * doesn't take its own absence for the server's.
 */
export function endWhenSilent(client: Client): void {
  let quietTicks = 0
  let bytesRead = 0
  const watch = setInterval(() => {
    const { stream } = client.connection
    const isQuiet = !client.readyForQuery && stream.bytesRead === bytesRead
    bytesRead = stream.bytesRead
    quietTicks = isQuiet ? quietTicks + 1 : 0
    // Ponder tries again after errors with this word.
    if (quietTicks * tickMs >= limitMs)
      stream.destroy(new Error(`ECONNRESET: Postgres was silent for ${limitMs} ms`))
  }, tickMs)
  watch.unref()
  client.once('end', () => clearInterval(watch))
}
