import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'

/**
 * Accepts a WebSocket upgrade (RFC 6455), as far as a test needs it: it reads nothing and sends short texts.
 */
export function acceptWebSocket({ headers }: IncomingMessage, socket: Duplex) {
  const accept = createHash('sha1')
    .update(`${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest('base64')
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
  )
  const write = (opcode: number, payload: Buffer) =>
    socket.write(Buffer.concat([Buffer.from([0x80 | opcode, payload.length]), payload]))
  return {
    send: (text: string) => write(1, Buffer.from(text)),
    close(code: number, reason: string): void {
      write(8, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]))
      socket.end()
    },
  }
}

/** Opens a WebSocket. Node's own client accepts headers in addition to the standard's arguments. */
export function openWebSocket(url: string, headers: Record<string, string> = {}): WebSocket {
  return new WebSocket(url, { headers } as never)
}

/** Resolves with the next event of this type. */
export function eventOf<Type extends 'message' | 'close' | 'error'>(
  socket: WebSocket,
  type: Type,
): Promise<WebSocketEventMap[Type]> {
  return new Promise((resolve) => socket.addEventListener(type, resolve as never, { once: true }))
}
