import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Call, Reply } from './staleHead.ts'

/** The answer of a node that refuses a call. */
export type Refusal = {
  /** HTTP status. Default 200. */
  http?: number
  /** Default: no JSON-RPC error, only a body with the message. */
  code?: number
  message: string
  headers?: Record<string, string>
}

export type LimitedNode = {
  url: string
  /** Each call so far, and whether it was refused. */
  calls: { method: string; params: readonly unknown[]; isRefused: boolean }[]
  /** Changes which calls are refused. */
  refuse: (refusalOf: RefusalOf) => void
  close: () => Promise<void>
  [Symbol.asyncDispose]: () => Promise<void>
}

/** Returns the refusal of a call; undefined if the node answers the call. */
export type RefusalOf = (call: Pick<Call, 'method' | 'params'>) => Refusal | undefined

/** Returns the number of blocks that a call of eth_getLogs spans, or undefined for any other call. */
export function spanOf({ method, params }: Pick<Call, 'method' | 'params'>): number | undefined {
  const { fromBlock, toBlock } = (params?.[0] ?? {}) as { fromBlock?: string; toBlock?: string }
  return method === 'eth_getLogs' && fromBlock ? Number(toBlock) - Number(fromBlock) + 1 : undefined
}

/** Refuses ranges of more than `blocks` blocks. */
export function rangeLimit(blocks: number, refusal: Refusal): RefusalOf {
  return (call) => ((spanOf(call) ?? 0) > blocks ? refusal : undefined)
}

/**
 * Starts a JSON-RPC node on loopback that refuses calls which a provider's plan doesn't allow.
 *
 * @param answer the result of a call, or the URL of the node behind it.
 */
export async function startLimitedNode(
  answer: string | ((call: Call) => unknown),
  refusalOf: RefusalOf = () => undefined,
): Promise<LimitedNode> {
  let refuses = refusalOf
  const calls: LimitedNode['calls'] = []

  async function replyTo(call: Call): Promise<Reply> {
    if (typeof answer === 'function') return { jsonrpc: '2.0', id: call.id, result: answer(call) }
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(answer, { method: 'POST', headers, body: JSON.stringify(call) })
    return (await response.json()) as Reply
  }
  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = JSON.parse(await text(request)) as Call | Call[]
    const batch = Array.isArray(body) ? body : [body]
    let status: Refusal | undefined
    const replies = await Promise.all(
      batch.map(async (call): Promise<Reply> => {
        const refusal = refuses(call)
        calls.push({ method: call.method, params: call.params ?? [], isRefused: refusal !== undefined })
        if (refusal === undefined) return replyTo(call)
        if (refusal.http !== undefined && refusal.http !== 200) status = refusal
        const { code = 0, message } = refusal
        return { jsonrpc: '2.0', id: call.id, error: { code, message } }
      }),
    )
    const reply = JSON.stringify(Array.isArray(body) ? replies : replies[0])
    const isText = status !== undefined && status.code === undefined
    const type = isText ? 'text/plain' : 'application/json'
    response.writeHead(status?.http ?? 200, { 'content-type': type, ...status?.headers })
    response.end(isText ? status?.message : reply)
  }
  const server = createServer((request, response) => {
    // An unreachable node behind it looks to the caller like a broken connection.
    handle(request, response).catch(() => request.socket.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    refuse: (refusalOf) => {
      refuses = refusalOf
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}
