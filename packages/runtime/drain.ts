import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Server as NetServer, type Socket } from 'node:net'

/**
 * Time in ms for which connections without a request stay open when the process stops. Within that time, a client with persistent
 * connections sends its next request, and the response contains `Connection: close`. If we closed the connection while a
 * request is being sent, that request would be lost.
 */
const graceMs = 1_000
/** Maximum time in ms for requests in progress to finish when the process stops. */
const drainMs = 8_000

/**
 * Creates a function that stops a server without losing a request: the server stops listening, responds with `Connection: close` to
 * requests that arrive on open connections, and then closes these connections.
 *
 * @returns a function that resolves when every connection is closed: after a second, or when the last request has ended. Requests
 * that are still in progress after eight seconds are cut off.
 */
export function createDrain(server: Server): () => Promise<void> {
  /** Open connections, and the requests in progress on each. */
  const open = new Map<Socket, Set<ServerResponse>>()
  let state: 'open' | 'grace' | 'closing' = 'open'

  server.on('connection', (socket: Socket) => {
    open.set(socket, new Set())
    socket.once('close', () => open.delete(socket))
  })

  // This listener must run before the app's: the app may send its headers immediately, and `shouldKeepAlive` has no effect afterwards.
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
      // The HTTP server's own `close` would immediately close connections without a request.
      NetServer.prototype.close.call(server, () => {
        clearTimeout(grace)
        clearTimeout(cut)
        resolve()
      })
    })
  }
}
