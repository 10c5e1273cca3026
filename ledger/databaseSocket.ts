import { Socket } from 'node:net'

const tickMs = 1_000
/** After the last write to a connection that is gone. */
const endsAfterMs = 100

/**
 * A connection to Postgres that ends when nothing has been read from it for `silenceMs`. A server that is gone without a
 * word (a failover without a reset, a firewall that drops) leaves a connection open for hours otherwise, and whoever
 * asked waits as long.
 *
 * It looks at what was received and not at what was sent: a pool goes on writing to a server that is gone. Time is counted
 * in ticks of this process, so that a process that was stopped or busy doesn't take its own absence for the server's.
 */
export class DatabaseSocket extends Socket {
  readonly host: string
  #failure: Error | undefined
  #end: NodeJS.Timeout | undefined

  /** @param host the server's name, which postgres.js reads from here for TLS. */
  constructor(host: string, silenceMs: number) {
    super()
    this.host = host
    // postgres.js takes an orderly end before the first answer for a reason to connect again, for ever.
    this.once('end', () => this.destroy(new ConnectionLost('the server has ended the connection')))
    let received = 0
    let quietTicks = 0
    const watch = setInterval(() => {
      // Asked here and not told by a listener: postgres.js takes off all listeners when it puts TLS on top.
      if (this.destroyed) return clearInterval(watch)
      quietTicks = this.bytesRead === received ? quietTicks + 1 : 0
      received = this.bytesRead
      if (quietTicks * tickMs >= silenceMs) {
        this.destroy(new ConnectionLost(`the server has been silent for ${silenceMs} ms`))
      }
    }, tickMs)
    watch.unref()
  }

  /**
   * Tells of the end a little later than of the error, and refuses at once what is written in between. postgres.js 3.4.9
   * writes to no socket at all, which ends the process, where a transaction rolls back after the end; and where the end is
   * told as an error's, it never answers the queries that came after the error.
   */
  override emit(event: string | symbol, ...args: unknown[]): boolean {
    if (event === 'error') this.#failure = args[0] as Error
    if (event !== 'close') return super.emit(event as 'error', args[0] as Error)
    this.#end = setTimeout(() => super.emit('close', false), endsAfterMs)
    return true
  }

  override write(...args: unknown[]): boolean {
    if (!this.destroyed) return super.write(...(args as [Uint8Array]))
    this.#end?.refresh()
    process.nextTick(() =>
      super.emit('error', this.#failure ?? new ConnectionLost('the connection has ended')),
    )
    return true
  }
}

class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'
  /** As Node says it of a connection that the other side has dropped. */
  readonly code = 'ECONNRESET'
}
