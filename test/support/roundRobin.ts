import { once } from 'node:events'
import { createServer, type IncomingMessage, request as send } from 'node:http'
import type { AddressInfo } from 'node:net'
import { loopback } from '@tollkeeper/runtime/port'

type Answer = { status: number; target: string; path: string }

export type Front = {
  url: string
  /** The targets of requests, in turn. */
  targets: string[]
  onAnswer: (answer: Answer) => void
  close: () => Promise<void>
}

/**
 * Starts a round-robin proxy, as operators put in front of several gateways. If nothing listens at a target, the
 * proxy forwards the request to the next target. If a target stops in the middle of a request, the proxy returns 502,
 * because the request may have been executed.
 */
export async function startFront(): Promise<Front> {
  const targets: string[] = []
  let turn = 0
  const server = createServer(async (request, response) => {
    const body = await read(request).catch(() => undefined)
    // The client has closed the connection.
    if (body === undefined) return
    const path = request.url ?? '/'
    const finish = (target: string, status: number, headers = {}, content?: Buffer) => {
      front.onAnswer({ status, target, path })
      response.writeHead(status, headers).end(content)
    }
    const first = turn++
    for (let attempt = 0; attempt < targets.length; attempt++) {
      const target = targets[(first + attempt) % targets.length] as string
      const outcome = await pass(target, request, body).catch((error: NodeJS.ErrnoException) => error)
      if (!(outcome instanceof Error)) return finish(target, outcome.status, outcome.headers, outcome.body)
      if (outcome.code !== 'ECONNREFUSED') return finish(target, 502)
    }
    finish('', 502)
  })
  // Keep idle connections open for long: a request fails if the proxy closes its connection at the moment when the client sends it.
  server.keepAliveTimeout = 65_000
  server.listen(0, loopback)
  await once(server, 'listening')
  const front: Front = {
    url: `http://${loopback}:${(server.address() as AddressInfo).port}`,
    targets,
    onAnswer: () => {},
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return front
}

async function pass(target: string, { method, url, headers }: IncomingMessage, body: Buffer) {
  const passed = send(new URL(url ?? '/', target), { method, headers, agent: false })
  passed.end(body)
  const [answer] = (await once(passed, 'response')) as [IncomingMessage]
  return { status: answer.statusCode ?? 502, headers: answer.headers, body: await read(answer) }
}

async function read(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of message) chunks.push(chunk)
  return Buffer.concat(chunks)
}
