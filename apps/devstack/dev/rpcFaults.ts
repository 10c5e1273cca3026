import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { loopback, reservePort } from '@tollkeeper/runtime/port'

/**
 * - `error`: responds with HTTP 503; the chain doesn't get the call.
 * - `refuse`: the connection breaks; the chain doesn't get the call.
 * - `lose`: the chain gets the call, and the connection breaks before the response.
 * - `stall`: passes the call on after `delayMs`.
 */
export const rpcFaultKinds = ['error', 'refuse', 'lose', 'stall'] as const

export type RpcFault = {
  kind: (typeof rpcFaultKinds)[number]
  /** JSON-RPC method to affect; default: any. */
  method?: string | undefined
  /** Number of calls to affect; default: all until `heal`. */
  times?: number | undefined
  /** Delay in ms for `stall`. Default 5,000. */
  delayMs?: number | undefined
}

export type RpcFaults = {
  /** The URL by which our processes reach the chain. */
  url: string
  fail: (fault: RpcFault) => void
  /** Ends all faults; stalled calls are passed on immediately. */
  heal: () => void
  close: () => Promise<void>
}

/**
 * Starts a proxy in front of a chain's node. On demand, the proxy simulates failures of the node. A fault for a method affects
 * each batch that contains a call of that method.
 */
export async function startRpcFaults(target: string): Promise<RpcFaults> {
  let planned: { fault: RpcFault; left: number }[] = []
  let healing = new AbortController()

  function take(body: string): RpcFault | undefined {
    if (planned.length === 0) return undefined
    const asked: { method?: string } | { method?: string }[] = JSON.parse(body)
    const methods = [asked].flat().map(({ method }) => method)
    const plan = planned.find(({ fault }) => fault.method === undefined || methods.includes(fault.method))
    if (plan === undefined) return undefined
    plan.left -= 1
    planned = planned.filter(({ left }) => left > 0)
    return plan.fault
  }

  async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request)
    const fault = take(body)
    if (fault?.kind === 'refuse') return void request.socket.destroy()
    if (fault?.kind === 'error') return void response.writeHead(503).end()
    if (fault?.kind === 'stall') {
      await delay(fault.delayMs ?? 5_000, undefined, { signal: healing.signal }).catch(() => {})
    }
    const answer = await fetch(target, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    })
    const answered = await answer.text()
    if (fault?.kind === 'lose') return void request.socket.destroy()
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answered)
  }

  const server = createServer((request, response) => {
    // To the caller, an unreachable node looks like a broken connection.
    pass(request, response).catch(() => request.socket.destroy())
  })
  const port = await reservePort()
  server.listen(port, loopback)
  await once(server, 'listening')
  const heal = () => {
    planned = []
    healing.abort()
    healing = new AbortController()
  }
  return {
    url: `http://${loopback}:${port}`,
    fail: (fault) => void planned.push({ fault, left: fault.times ?? Number.POSITIVE_INFINITY }),
    heal,
    close: async () => {
      heal()
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
    },
  }
}
