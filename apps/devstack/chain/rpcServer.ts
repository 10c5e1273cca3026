import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { loopback } from '@tollkeeper/runtime/port'
import type { Answer, JsonRpcRequest } from './edr.ts'

/**
 * Serves JSON-RPC over HTTP on loopback, to programs and web pages of this machine. It checks Origin, because other pages in a
 * developer's browser could change the chain during tests, and Host, because a page's name may resolve to this machine.
 *
 * @returns the port
 */
export async function serveRpc(port: number, answer: Answer): Promise<number> {
  const server = createServer((request, response) => {
    reply(request, response, answer).catch((error) => response.destroy(error))
  })
  server.listen(port, loopback)
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

async function reply(request: IncomingMessage, response: ServerResponse, answer: Answer): Promise<void> {
  const { host = '', origin } = request.headers
  if (![`http://${host}`, ...(origin === undefined ? [] : [origin])].every(isOfThisMachine)) {
    response.writeHead(403).end()
    return
  }
  response.setHeader('Access-Control-Allow-Origin', origin ?? '*')
  response.setHeader('Vary', 'Origin')
  response.setHeader('Access-Control-Allow-Headers', '*')
  if (request.method === 'OPTIONS') {
    response.end()
    return
  }
  const asked = parse(await text(request))
  response.setHeader('Content-Type', 'application/json')
  if (!Array.isArray(asked)) {
    response.end(await answerOne(asked, answer))
    return
  }
  const answers: string[] = []
  for (const one of asked) answers.push(await answerOne(one, answer))
  response.end(`[${answers.join(',')}]`)
}

function isOfThisMachine(url: string): boolean {
  return ['127.0.0.1', 'localhost', '[::1]'].includes(URL.parse(url)?.hostname ?? '')
}

function parse(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}

async function answerOne(asked: unknown, answer: Answer): Promise<string> {
  const id = isRequest(asked) ? JSON.stringify(asked.id ?? null) : 'null'
  const text = isRequest(asked) ? await answer(asked) : invalidRequest
  return `{"jsonrpc":"2.0","id":${id},${text.slice(1)}`
}

const invalidRequest = JSON.stringify({ error: { code: -32600, message: 'Invalid request' } })

function isRequest(asked: unknown): asked is JsonRpcRequest {
  return typeof asked === 'object' && asked !== null && 'method' in asked && typeof asked.method === 'string'
}
