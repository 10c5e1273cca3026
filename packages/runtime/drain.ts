import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'

/**
 * How long connections without a request stay open when the process stops. A client that keeps connections sends its next request within
 * that time and is told to close; a connection that is closed while a request is on its way would lose that request.
 */
const graceMs = 1_000
/** How long requests under way may take to finish when the process stops. */
const drainMs = 8_000

/**
 * Stops a server without losing a request: it listens no more, answers what arrives on open connections with `Connection: close`, and
 * closes them.
 *
 * @returns a function that resolves once every connection is closed: after a second, or when the last request has ended. What is under
 *   way after eight seconds is cut.
 */
export function createDrain(server: Server): () => Promise<void> {
  /** Open connections, and the requests that are under way on each. */
  const open = new Map<Socket, Set<ServerResponse>>()
  let state: 'open' | 'grace' | 'closing' = 'open'

  server.on('connection', (socket: Socket) => {
    open.set(socket, new Set())
    socket.once('close', () => open.delete(socket))
  })

  // Before the app, which may send its headers at once.
  server.prependListener('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const underWay = open.get(socket)
    if (state !== 'open') response.shouldKeepAlive = false
    underWay?.add(response)
    response.once('close', () => {
      underWay?.delete(response)
      if (state === 'closing') closeResting()
    })
  })

  function closeResting(): void {
    for (const [socket, underWay] of open) if (underWay.size === 0) socket.destroy()
  }

  return () => {
    state = 'grace'
    for (const underWay of open.values()) {
      for (const response of underWay) response.shouldKeepAlive = false
    }
    return new Promise((resolve) => {
      const grace = setTimeout(() => {
        state = 'closing'
        closeResting()
      }, graceMs)
      const cut = setTimeout(() => server.closeAllConnections(), drainMs)
      // The HTTP server's own `close` would close connections without a request at once.
      NetServer.prototype.close.call(server, () => {
        clearTimeout(grace)
        clearTimeout(cut)
        resolve()
      })
    })
  }
}
