import { EventEmitter } from 'node:events'
import { connect, isIP, type Socket } from 'node:net'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'

const tickMs = 1_000
/** Length 8, code 80877103 (PostgreSQL, "SSLRequest"). */
export const tlsRequest = Buffer.from('0000000804d2162f', 'hex')
/** The answer of a server that is ready for TLS: `S`. */
export const tlsAccepted = 0x53
/** First bytes of two messages: `E` and `Z`. */
const messages = { error: 0x45, readyForQuery: 0x5a }
const readyForQuery = Buffer.from('5a0000000549', 'hex')

export type DatabaseSocketOptions = {
  /** Path of the Unix socket that replaces host and port. */
  path?: string
  host: string
  port: number
  /** TLS options; undefined for no TLS. `optional`: connects without TLS if the server doesn't support it. */
  tls?: ConnectionOptions & { optional: boolean }
  /** Time in ms after which a silent connection counts as lost; undefined for no limit. */
  silenceMs?: number
  /** Called when the connection has ended although postgres.js didn't end it. */
  onLost: (socket: DatabaseSocket) => void
}

/**
 * A connection to Postgres with the interface that postgres.js 3.4.9 expects. It never reports to postgres.js that it has lost its server. Instead,
 * until `release`, it answers queries from before and after the loss with an error.
 *
 * If postgres.js learned of an unexpected end, it would write to a missing socket in a transaction, which ends the process; or send the rest of an
 * old transaction to the next session; or never send the first message of the next session, because its write timer is stale. So a pool that has lost
 * a connection is replaced, see `database.ts`.
 *
 * If a server disappears silently (a failover without a reset, a firewall that drops packets), the connection would stay open for hours, so
 * `silenceMs` ends it. Only received data restarts this time, because a pool continues to write to a lost server. Time is counted in ticks of this
 * process, so that a process that was stopped or busy doesn't mistake its own pause for the server's.
 */
export class DatabaseSocket extends EventEmitter {
  /** postgres.js reads this property. A lost connection stays `open` until `release`, so that postgres.js waits for the end. */
  readyState: 'open' | 'closed' = 'open'
  /** Whether the server has ever sent data. */
  isAnswered = false
  readonly #options: DatabaseSocketOptions
  /** Set as soon as data may be sent: if we asked for TLS, after the server's answer. */
  #stream: Socket | undefined
  #raw: Socket
  #early: Uint8Array[] = []
  /** While the session starts: the received part of an incomplete message. */
  #unread: Buffer = Buffer.alloc(0)
  /** Number of ReadyForQuery messages: the first when the session has started, the second when postgres.js knows its types. */
  #readies = 0
  #isEnding = false
  #failure: Error | undefined
  #quietTicks = 0
  #watch: NodeJS.Timeout

  constructor(options: DatabaseSocketOptions) {
    super()
    this.#options = options
    const { path, host, port, tls, silenceMs = Number.POSITIVE_INFINITY } = options
    this.#raw = path ? connect(path) : connect(port, host)
    this.#watchEnd(this.#raw)
    if (tls) this.#requestTls(tls)
    else this.#carry(this.#raw)
    this.#watch = setInterval(() => {
      this.#quietTicks += 1
      if (this.#quietTicks * tickMs < silenceMs) return
      this.#lose(new ConnectionLost(`the server has been silent for ${silenceMs} ms`))
    }, tickMs).unref()
  }

  #requestTls({ optional, ...options }: ConnectionOptions & { optional: boolean }): void {
    this.#raw.write(tlsRequest)
    this.#raw.once('data', (answer) => {
      // Additional bytes were inserted by someone between us and the server (CVE-2021-23222).
      if (answer.length !== 1) return this.#lose(new ConnectionLost('the answer about TLS is not one byte'))
      if (answer[0] !== tlsAccepted) {
        if (optional) return this.#carry(this.#raw)
        return this.#lose(new ConnectionLost('the server does not support TLS'))
      }
      const { host } = this.#options
      // The certificate must name `host`. Node doesn't know this name, because the stream is already connected, and would check for `localhost`.
      const name = isIP(host) ? { host } : { host, servername: host }
      const stream = connectTls({ ...options, socket: this.#raw, ...name })
      this.#watchEnd(stream)
      this.#carry(stream)
    })
  }

  #watchEnd(stream: Socket): void {
    stream.on('error', (error) => this.#lose(error))
    for (const event of ['end', 'close']) {
      stream.on(event, () => this.#lose(new ConnectionLost('the server has closed the connection')))
    }
  }

  #carry(stream: Socket): void {
    this.#stream = stream
    stream.on('data', (data) => {
      this.isAnswered = true
      this.#quietTicks = 0
      this.#read(data)
    })
    stream.on('drain', () => this.emit('drain'))
    for (const data of this.#early.splice(0)) stream.write(data)
    if (this.#isEnding) stream.end()
  }

  /**
   * When a session has started, postgres.js queries its types, and doesn't handle a failure of that query, which ends the process. So until
   * that query is answered, pass on only complete messages, and no errors.
   */
  #read(data: Buffer): void {
    if (this.#failure) return
    if (this.#readies === 2) {
      this.emit('data', data)
      return
    }
    const unread = Buffer.concat([this.#unread, data])
    let end = 0
    while (unread.length >= end + 5 && this.#readies < 2) {
      const next = end + 1 + unread.readInt32BE(end + 1)
      if (next > unread.length) break
      if (unread[end] === messages.error && this.#readies === 1) {
        if (end > 0) this.emit('data', unread.subarray(0, end))
        this.#lose(new ConnectionLost('the server has refused a session that was starting'))
        return
      }
      if (unread[end] === messages.readyForQuery) this.#readies += 1
      end = next
    }
    if (this.#readies === 2) end = unread.length
    this.#unread = unread.subarray(end)
    if (end > 0) this.emit('data', unread.subarray(0, end))
  }

  /** Handles the loss of the connection: an error, the end, or too long a silence. Only the first of these has an effect. */
  #lose(error: Error): void {
    if (this.#failure) return
    this.#failure = error
    clearInterval(this.#watch)
    this.#stream?.destroy()
    this.#raw.destroy()
    if (this.#isEnding) this.release()
    else {
      if (this.#readies === 1) this.emit('data', readyForQuery)
      this.#fail()
      this.#options.onLost(this)
    }
  }

  /** Makes postgres.js reject the queries that it has sent to the server with this error. */
  #fail(): void {
    if (this.readyState === 'open' && this.listenerCount('error') > 0) this.emit('error', this.#failure)
  }

  /** Reports the end to postgres.js. Call it only for a pool that was ended, because such a pool doesn't connect again. */
  release(): void {
    if (this.readyState === 'closed') return
    this.readyState = 'closed'
    this.emit('close', false)
  }

  write(data: Uint8Array, done?: (error?: Error | null) => void): boolean {
    if (this.#failure) {
      process.nextTick(() => {
        this.#fail()
        done?.(this.#failure)
      })
      return true
    }
    if (this.#stream) return this.#stream.write(data, done)
    this.#early.push(data)
    return true
  }

  /** Called when postgres.js no longer needs the connection. */
  end(data: Uint8Array): void {
    if (this.#failure) return
    this.#isEnding = true
    if (this.#stream) this.#stream.end(data)
    else this.#early.push(data)
  }

  destroy(): void {
    this.#lose(new ConnectionLost('the server has not answered in time'))
  }

  /**
   * Ends a session that has not started yet. The owner of a pool calls this before postgres.js destroys the pool. Otherwise postgres.js
   * would reject its own query for the types; nothing catches that rejection, so it would end the process.
   */
  cutStart(): void {
    if (this.#readies < 2)
      this.#lose(new ConnectionLost('the pool was closed while the session was starting'))
  }

  setKeepAlive(isOn: boolean, delayMs: number): void {
    this.#raw.setKeepAlive(isOn, delayMs)
  }

  pause(): void {
    this.#stream?.pause()
  }

  resume(): void {
    this.#stream?.resume()
  }
}

export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'
  /** Node's code for a connection that the other side has closed. */
  readonly code = 'ECONNRESET'
}
