import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { discardIncoming } from '@tollkeeper/sdk/middleware/unreadBody'
import { errorCodes } from '@tollkeeper/sdk/protocol/errors'

export type UploadLimits = {
  /** Maximum time in ms for which the server waits for the next byte of a request's body. Default 15,000. */
  silenceMs?: number
  /**
   * Minimum average rate of a body in bytes per second. It applies once the sender has used up the permitted silence. Default
   * 1,024.
   */
  minBytesPerSecond?: number
}

type Upload = {
  request: IncomingMessage
  response: ServerResponse
  socket: Socket
  /** Number of bytes that the connection had received when the request began. */
  began: number
  received: number
  /** Times in ms for which the server has waited for the sender: since the last byte, and in total. */
  silentMs: number
  waitedMs: number
}

/**
 * Ends requests whose bodies don't arrive. On a slow link, a body may take as long as it needs. Two things end a request: a silence of more than
 * `silenceMs`, and an average rate that is lower than on any real link. Only the time in which the server reads is counted.
 *
 * Node's `requestTimeout` limits the whole request, so it would cut off a large body that arrives slowly but steadily.
 *
 * If a response is complete before the request's body, the end of the response is delayed until the rest of the body was read and
 * discarded. Closing the connection earlier would reset it.
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
    // If this process was paused, it received nothing in the meantime. That isn't the senders' fault, so don't count the whole time.
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
    // The buffer is full, so the sender is waiting for the server. Don't count this time.
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
    const upload = {
      request,
      response,
      socket,
      began: bytesRead,
      received: bytesRead,
      silentMs: 0,
      waitedMs: 0,
    }
    uploads.add(upload)
    endAfterBody(request, response, () => {
      // Remove the request now. If thousands of requests stayed until the next check, V8 would move them to the old generation.
      if (request.complete) uploads.delete(upload)
    })
  })
}

/**
 * Delays the end of an early response until the rest of the request's body was discarded.
 *
 * @param onEnd called when the response ends, before the rest is discarded.
 */
function endAfterBody(request: IncomingMessage, response: ServerResponse, onEnd: () => void): void {
  const { end } = response
  response.end = ((...args: Parameters<typeof end>) => {
    response.end = end
    onEnd()
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

/** Responds with an error to a sender that has stopped, if there was no response yet, and closes the connection. */
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
