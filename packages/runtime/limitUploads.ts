import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { discardIncoming } from '@tollkeeper/sdk/middleware/unreadBody'
import { errorCodes } from '@tollkeeper/sdk/protocol/errors'

export type UploadLimits = {
  /** The longest time without a byte of a request's body while the server waits for it. Default 15,000. */
  silenceMs?: number
  /** The slowest pace of a body as a whole, after the silence that is allowed once. Default 1,024. */
  minBytesPerSecond?: number
}

type Upload = {
  request: IncomingMessage
  response: ServerResponse
  socket: Socket
  /** Bytes that the connection had received when the request began. */
  began: number
  received: number
  /** Milliseconds that the server has waited for the sender: without a byte, and altogether. */
  silentMs: number
  waitedMs: number
}

/**
 * Ends requests whose bodies don't arrive. A slow link may take as long as its body needs: only silence counts, and a pace that no
 * link has. Time in which the server itself doesn't read is not counted.
 *
 * Node's `requestTimeout` counts the whole request, so it cuts a large body that arrives slowly and steadily.
 *
 * An answer that comes before the end of its request's body is sent whole once the rest of that was discarded, since closing the
 * connection earlier would reset it.
 */
export function limitUploads(
  server: Server,
  { silenceMs = 15_000, minBytesPerSecond = 1_024 }: UploadLimits = {},
): void {
  const uploads = new Set<Upload>()
  const intervalMs = Math.min(1_000, silenceMs / 4)
  let at = performance.now()

  const timer = setInterval(() => {
    const now = performance.now()
    // A process that stood still has received nothing meanwhile, which isn't its senders' fault.
    const passedMs = Math.min(now - at, 2 * intervalMs)
    at = now
    for (const upload of uploads) check(upload, passedMs)
  }, intervalMs)
  timer.unref()
  server.once('close', () => clearInterval(timer))

  function check(upload: Upload, passedMs: number): void {
    const { request, socket } = upload
    if (request.complete || socket.destroyed) return void uploads.delete(upload)
    const { bytesRead } = socket
    const hasMoved = bytesRead > upload.received
    upload.received = bytesRead
    // The buffer is full: it is the server's turn.
    if (request.readableLength >= request.readableHighWaterMark) return
    upload.silentMs = hasMoved ? 0 : upload.silentMs + passedMs
    upload.waitedMs += passedMs
    const paceMs = (1_000 * (bytesRead - upload.began)) / minBytesPerSecond
    if (upload.silentMs < silenceMs && upload.waitedMs < silenceMs + paceMs) return
    uploads.delete(upload)
    endLate(upload)
  }

  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket, headers } = request
    if (headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0) return
    const { bytesRead } = socket
    uploads.add({
      request,
      response,
      socket,
      began: bytesRead,
      received: bytesRead,
      silentMs: 0,
      waitedMs: 0,
    })
    endAfterBody(request, response)
  })
}

/** Holds the end of an early answer until the rest of the request's body was discarded. */
function endAfterBody(request: IncomingMessage, response: ServerResponse): void {
  const { end } = response
  response.end = ((...args: Parameters<typeof end>) => {
    response.end = end
    discardIncoming(request, () => Reflect.apply(end, response, args))
    return response
  }) as typeof end
}

const { status, title } = errorCodes.request_timeout
const late = JSON.stringify({
  type: 'urn:tollkeeper:problem:request_timeout',
  title,
  status,
  detail: 'No more of the body arrived, so nothing was accepted: send the request again',
  code: 'request_timeout',
})

/** Answers a sender that has stopped, if nothing was answered yet, and closes the connection. */
function endLate({ response, socket }: Upload): void {
  if (response.headersSent || response.socket !== socket) return void socket.destroy()
  const head = [
    `HTTP/1.1 ${status} Request Timeout`,
    'Connection: close',
    'Content-Type: application/problem+json',
    `Content-Length: ${Buffer.byteLength(late)}`,
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${late}`, () => socket.destroy())
}
