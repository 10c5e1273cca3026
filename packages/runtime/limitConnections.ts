import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { subscriberOf } from './clientAddress.ts'

type Connection = { host: string; underWay: Set<IncomingMessage> }

/** Number of requests that a host may be sending at the same time without risk. If a host is sending more, the server may end one of them. */
const mostUploads = 8

/**
 * Limits the number of open connections. If a new connection exceeds the limit, it ends an idle connection, that is, one without a
 * request in progress. It chooses the host with the most idle connections, and ends the connection of that host that has been idle
 * for longest. So a host with thousands of silent connections loses these, and doesn't keep other hosts out.
 *
 * If every connection has a request in progress, it chooses the host with the most requests that are still arriving, and ends the
 * oldest of these requests. If no host has more than {@link mostUploads} such requests, it rejects the new connection.
 *
 * Node's `maxConnections` would always reject the new connection, and keep a silent connection for as long as `headersTimeout`
 * permits.
 */
export function limitConnections(server: Server, most: number): void {
  const open = new Map<Socket, Connection>()
  /** The connections without a request in progress, by host; the one that has been idle for longest comes first. */
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

  /** Ends a connection to make room. @param newest the new connection, which is ended if no other connection can be. */
  function endOne(newest: Socket): void {
    const [longest = newest] = largestOf(resting) ?? []
    const [slowest = newest] = longest === newest ? (largestOf(findUploads(), mostUploads) ?? []) : []
    const socket = longest === newest ? slowest : longest
    forget(socket)
    socket.destroy()
  }

  /** Returns, by host, the connections on which every request is still arriving. */
  function findUploads(): Map<string, Set<Socket>> {
    const uploads = new Map<string, Set<Socket>>()
    for (const [socket, { host, underWay }] of open) {
      if (underWay.size === 0 || [...underWay].some(({ complete }) => complete)) continue
      uploads.set(host, (uploads.get(host) ?? new Set()).add(socket))
    }
    return uploads
  }

  server.on('connection', (socket: Socket) => {
    const host = subscriberOf(socket.remoteAddress ?? '')
    open.set(socket, { host, underWay: new Set() })
    rest(socket, host)
    socket.once('close', () => forget(socket))
    if (open.size > most) endOne(socket)
  })

  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request
    const connection = open.get(socket)
    if (connection === undefined) return
    // Keep a set, because a client may send several requests before it reads a response.
    connection.underWay.add(request)
    wake(socket, connection.host)
    response.once('close', () => {
      connection.underWay.delete(request)
      if (connection.underWay.size === 0 && open.has(socket)) rest(socket, connection.host)
    })
  })
}

/** Returns the largest set with more than `most` members. */
function largestOf(byHost: Map<string, Set<Socket>>, most = 0): Set<Socket> | undefined {
  let largest: Set<Socket> | undefined
  for (const ofHost of byHost.values()) if (ofHost.size > (largest?.size ?? most)) largest = ofHost
  return largest
}
