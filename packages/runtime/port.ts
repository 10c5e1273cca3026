import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:net'

export const loopback = '127.0.0.1'

// The range is above the well-known ports of services, and below the ports of outgoing connections (from 32768 on Linux).
const lowest = 20_000
const highest = 32_767

/**
 * Reserves a free port on loopback for the lifetime of this process, for a server whose URL must be known before the server starts. A server whose
 * URL may be known later can listen on port 0 instead.
 *
 * The lock is a UDP socket on the same port number, which the system closes when this process ends in any way.
 *
 * @throws Error if every port from `from` to `to` is taken.
 */
export async function reservePort(from = lowest, to = highest): Promise<number> {
  const ports = to - from + 1
  const first = Math.floor(Math.random() * ports)
  for (let tried = 0; tried < ports; tried++) {
    const port = from + ((first + tried) % ports)
    const lock = await takeLock(port)
    if (lock === null) continue
    if (await isPortFree(port)) return port
    lock.close()
  }
  throw new Error(`No port from ${from} to ${to} is free: stop the programs that listen on them`)
}

async function takeLock(port: number): Promise<Socket | null> {
  const socket = createSocket('udp4').unref()
  socket.bind({ port, address: loopback, exclusive: true })
  try {
    await once(socket, 'listening')
    return socket
  } catch {
    socket.close()
    return null
  }
}

/** Whether a server can listen on `port` on loopback. */
export async function isPortFree(port: number): Promise<boolean> {
  const server = createServer().listen({ port, host: loopback, exclusive: true })
  try {
    await once(server, 'listening')
  } catch {
    return false
  }
  server.close()
  await once(server, 'close')
  return true
}
