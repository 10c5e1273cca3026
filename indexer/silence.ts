import type { Socket } from 'node:net'

/** The message that the launcher sends to Ponder's process when Ponder has caught up. */
export const caughtUp = 'caught up'

const tickMs = 1_000
/** Maximum silence of Postgres in ms during a statement. Until Ponder has caught up with the chain, its statements may run for two minutes. */
let limitMs = 130_000

/** Runs in Ponder's process. Shortens the limit when the launcher reports that Ponder has caught up, because statements are short from then on. */
export function listenToParent(): void {
  process.on('message', (message) => {
    if (message === caughtUp) limitMs = 8_000
  })
  // Listening must not keep the process alive.
  process.channel?.unref()
}

/** A node-postgres client, as its pool passes it to `onConnect`. */
type Client = {
  /** Whether no query is pending. */
  readyForQuery: boolean
  connection: { stream: Socket }
  once: (event: 'end', listener: () => void) => void
}

/**
 * Ends a connection whose server owes an answer and has sent nothing for too long. Ponder then connects again and repeats its
 * transaction. Otherwise, if a server disappears without closing its connections (a failover without a reset, a firewall that drops
 * packets), the connections and with them the index would hang for hours.
 *
 * It measures time in ticks of this process, like the ledger's DatabaseSocket. So after this process was stopped or busy, it doesn't
 * mistake its own pause for the server's silence.
 */
export function endWhenSilent(client: Client): void {
  let quietTicks = 0
  let bytesRead = 0
  const watch = setInterval(() => {
    const { stream } = client.connection
    const isQuiet = !client.readyForQuery && stream.bytesRead === bytesRead
    bytesRead = stream.bytesRead
    quietTicks = isQuiet ? quietTicks + 1 : 0
    // Ponder retries after errors that contain ECONNRESET.
    if (quietTicks * tickMs >= limitMs)
      stream.destroy(new Error(`ECONNRESET: Postgres was silent for ${limitMs} ms`))
  }, tickMs)
  watch.unref()
  client.once('end', () => clearInterval(watch))
}
