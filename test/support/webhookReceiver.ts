import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'

export type ReceivedMessage = { headers: IncomingHttpHeaders; body: string }

/** Starts a real HTTP server that keeps what it receives and answers with `answer`, by default 204. */
export async function startWebhookReceiver(
  answer: (response: ServerResponse, count: number) => void = (response) => response.writeHead(204).end(),
) {
  const received: ReceivedMessage[] = []
  const server = createServer(async (request, response) => {
    received.push({ headers: request.headers, body: await text(request) })
    answer(response, received.length)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}/hook`, received, close, [Symbol.asyncDispose]: close }
}
