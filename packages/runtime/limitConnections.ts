import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { subscriberOf } from './clientAddress.ts'

type Connection = { host: string; requestsUnderWay: number }

/**
 * Bounds the connections that are open at a time. One too many ends the longest resting connection, without a request under way, of
 * the host with the most of these. So a host with thousands of silent connections loses its own, and shuts nobody out.
 * If every connection has a request under way, the new one is refused.
 *
 * Node's `maxConnections` would always refuse the new one, and let a silent one stay as long as `headersTimeout` allows.
 */
export function limitConnections(server: Server, most: number): void {
  const open = new Map<Socket, Connection>()
  /** By host, the connections without a request under way, the longest resting one first. */
  const resting = new Map<string, Set<Socket>>()

  function rest(socket: Socket, host: string): void {
    resting.set(host, (resting.get(host) ?? new Set()).add(socket))
  }

  function wake(socket: Socket, host: string): void {
    const ofHost = resting.get(host)
    ofHost?.delete(socket)
    if (ofHost?.size === 0) resting.delete(host)
  }

  function forget(socket: Socket): void {
    const connection = open.get(socket)
    if (connection === undefined) return
    open.delete(socket)
    wake(socket, connection.host)
  }

  function endOne(): void {
    let largest: Set<Socket> | undefined
    for (const ofHost of resting.values()) if (ofHost.size > (largest?.size ?? 0)) largest = ofHost
    const socket = largest?.values().next().value
    if (socket === undefined) return
    forget(socket)
    socket.destroy()
  }

  server.on('connection', (socket: Socket) => {
    const host = subscriberOf(socket.remoteAddress ?? '')
    open.set(socket, { host, requestsUnderWay: 0 })
    rest(socket, host)
    socket.once('close', () => forget(socket))
    if (open.size > most) endOne()
  })

  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    const connection = open.get(socket)
    if (connection === undefined) return
    // A client may send several requests before it reads an answer.
    connection.requestsUnderWay += 1
    wake(socket, connection.host)
    response.once('close', () => {
      connection.requestsUnderWay -= 1
      if (connection.requestsUnderWay === 0 && open.has(socket)) rest(socket, connection.host)
    })
  })
}
