import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { subscriberOf } from './clientAddress.ts'

type Connection = { host: string; underWay: Set<IncomingMessage> }

/** How many requests of a host may arrive slowly before they count as the load that shuts others out. */
const mostUploads = 8

/**
 * Bounds the connections that are open at a time. One too many ends the longest resting connection, without a request under way, of
 * the host with the most of these. So a host with thousands of silent connections loses its own, and shuts nobody out.
 * If every connection has a request under way, it ends the oldest whose request is still arriving, of the host with the most of these,
 * since a body may take long. If no host has many, the new connection is refused.
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

  /** @param newest the last resort. */
  function endOne(newest: Socket): void {
    const [longest = newest] = largestOf(resting) ?? []
    const [slowest = newest] = longest === newest ? (largestOf(findUploads(), mostUploads) ?? []) : []
    const socket = longest === newest ? slowest : longest
    forget(socket)
    socket.destroy()
  }

  /** The connections, by host, that only have requests whose bodies are still arriving. */
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
    // A client may send several requests before it reads an answer.
    connection.underWay.add(request)
    wake(socket, connection.host)
    response.once('close', () => {
      connection.underWay.delete(request)
      if (connection.underWay.size === 0 && open.has(socket)) rest(socket, connection.host)
    })
  })
}

/** The largest set of more than `most`. */
function largestOf(byHost: Map<string, Set<Socket>>, most = 0): Set<Socket> | undefined {
  let largest: Set<Socket> | undefined
  for (const ofHost of byHost.values()) if (ofHost.size > (largest?.size ?? most)) largest = ofHost
  return largest
}
