import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Hex } from 'viem'
import { drawFrom } from './draw.ts'
import { askStaleNode, type Call, type Reply } from './staleHead.ts'

/**
 * A fault of one call.
 *
 * - `drop-reply`: the chain gets the call, but the connection to the caller breaks.
 * - `refuse`: the connection breaks before the chain gets the call.
 * - `delay`: the chain gets the call late, possibly after the caller's timeout.
 * - `duplicate`: the chain gets the call twice, and the caller gets the second answer.
 * - `429`, `500`: answers with this HTTP status; the chain gets nothing.
 * - `stale-head`: answers like a node that is some blocks behind.
 * - `null-receipt`: answers `null`, as if the transaction or block were unknown.
 * - `already-known`: the chain gets the call, and the caller gets the error `already known`.
 * - `{ error }`: answers with this JSON-RPC error; the chain gets nothing.
 *
 * In a JSON-RPC batch, a connection fault (`drop-reply`, `refuse`, `429` or `500`) affects the whole batch.
 */
type Fault = (typeof faults)[number] | Lie

/** Answers with this value without calling the chain. */
type Lie = { error: { code: number; message: string } } | { result: unknown }

const faults = [
  'drop-reply',
  'refuse',
  'delay',
  'duplicate',
  '429',
  '500',
  'stale-head',
  'null-receipt',
  'already-known',
] as const

type FaultName = (typeof faults)[number]

type SeenCall = {
  method: string
  params: readonly unknown[]
  /** The applied fault, if any. */
  fault?: Fault
  /** Whether the chain got the call. */
  isForwarded: boolean
}

type RandomFaults = {
  /** Faults at random. The same seed chooses the same calls: the n-th call of a method has the same fault in each run. */
  seed: number
  /** Fraction of calls that are disturbed. */
  rate: number
  /** Default: every method. */
  methods?: readonly string[]
  /** Default: every fault that applies to the method. */
  faults?: readonly FaultName[]
}

export type ChaosRpcOptions = {
  /** The JSON-RPC node behind the proxy. */
  target: string
  /** Milliseconds by which the fault `delay` delays a call. Default 500. */
  delayMs?: number
  /** Number of blocks by which `stale-head` lags behind. Default 3. */
  staleBlocks?: number
  /** Maximum number of blocks per eth_getLogs. Public providers have such a limit. Default: unlimited. */
  logRangeLimit?: number
  /** Awaited when a raw transaction arrives, before the chain gets it. By that time, the transaction must be stored. */
  onRawTransaction?: (raw: Hex) => Promise<void>
}

export type ChaosRpc = {
  url: string
  /** Every call since the start, in the order of arrival. */
  calls: readonly SeenCall[]
  /** Raw transactions that arrived, in order, including repeated ones. */
  rawTransactions: (only?: 'forwarded') => Hex[]
  /**
   * Applies a fault to the next call of a method (`'*'`: of any method), or to the next `times` calls, in the order of the
   * requests.
   */
  next: (method: string, fault: Fault, times?: number) => void
  /** Applies a fault to every call of a method (`'*'`: of any method) until `heal`. */
  always: (method: string, fault: Fault) => void
  /** Applies faults to calls at random until `heal`. */
  random: (options: RandomFaults) => void
  /** Stops further faults. Calls that are already delayed stay delayed. */
  heal: () => void
  /** Resolves once `count` calls of a method, counted from the start, have been answered or broken off. */
  waitFor: (method: string, count?: number) => Promise<void>
  close: () => Promise<void>
  [Symbol.asyncDispose]: () => Promise<void>
}

/** Whether a fault can occur for a method in reality: through a broken connection, an overloaded node or a lagging node. */
const applicable: Record<FaultName, (method: string) => boolean> = {
  'drop-reply': () => true,
  refuse: () => true,
  delay: () => true,
  duplicate: () => true,
  '429': () => true,
  '500': () => true,
  'stale-head': (method) => method !== 'eth_sendRawTransaction',
  'null-receipt': (method) => /^eth_getTransaction(Receipt|ByHash)$/.test(method),
  'already-known': (method) => method === 'eth_sendRawTransaction',
}

/**
 * Starts a JSON-RPC proxy on loopback that causes the faults of real networks and nodes.
 *
 * @example
 * await using chaos = await startChaosRpc({ target: chain.url })
 * chaos.next('eth_sendRawTransaction', 'drop-reply')
 */
export async function startChaosRpc(options: ChaosRpcOptions): Promise<ChaosRpc> {
  const { target, delayMs = 500, staleBlocks = 3 } = options
  const calls: SeenCall[] = []
  const planned: { method: string; fault: Fault; left: number }[] = []
  let chance: RandomFaults | undefined
  const counts = new Map<string, number>()
  const done = new Map<string, number>()
  const waiters = new Set<() => void>()
  const closing = new AbortController()

  const chooseFault = (method: string): Fault | undefined => {
    const nth = (counts.get(method) ?? 0) + 1
    counts.set(method, nth)
    const plan = planned.find((one) => one.left > 0 && (one.method === method || one.method === '*'))
    if (plan) {
      plan.left -= 1
      return plan.fault
    }
    if (!chance || (chance.methods && !chance.methods.includes(method))) return undefined
    const draw = drawFrom(`${chance.seed} ${method} ${nth}`)
    if (draw() >= chance.rate) return undefined
    const possible = (chance.faults ?? faults).filter((fault) => applicable[fault](method))
    return possible[Math.floor(draw() * possible.length)]
  }

  const send = async (body: unknown): Promise<unknown> => {
    const response = await fetch(target, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: closing.signal,
    })
    return response.json()
  }
  const sendOne = async (call: Call): Promise<Reply> => {
    const refusal = refuseRange(call, options.logRangeLimit)
    return refusal ?? ((await send(call)) as Reply)
  }

  const answer = async (call: Call, fault: Fault | undefined): Promise<Reply> => {
    if (fault === undefined || fault === 'drop-reply') return sendOne(call)
    if (typeof fault === 'object') return { jsonrpc: '2.0', id: call.id, ...fault }
    switch (fault) {
      case 'delay':
        await pause(delayMs, closing.signal)
        return sendOne(call)
      case 'duplicate':
        await sendOne(call)
        return sendOne(call)
      case 'already-known':
        await sendOne(call)
        return { jsonrpc: '2.0', id: call.id, error: { code: -32000, message: 'already known' } }
      case 'null-receipt':
        return { jsonrpc: '2.0', id: call.id, result: null }
      case 'stale-head': {
        const latest = BigInt(
          (await sendOne({ ...call, method: 'eth_blockNumber', params: [] })).result as Hex,
        )
        const head = latest > BigInt(staleBlocks) ? latest - BigInt(staleBlocks) : 0n
        return askStaleNode(call, head, sendOne)
      }
      default:
        throw new Error(`${fault} concerns the connection`)
    }
  }

  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const body: Call | Call[] = JSON.parse(await text(request))
    const batch = Array.isArray(body) ? body : [body]
    const faulty = batch.map((call) => ({ call, fault: chooseFault(call.method) }))
    const breaking = faulty.find(
      ({ fault }) => fault === 'refuse' || fault === '429' || fault === '500',
    )?.fault
    for (const { call, fault } of faulty) {
      calls.push({
        method: call.method,
        params: call.params ?? [],
        ...(fault !== undefined && { fault }),
        isForwarded: breaking === undefined && fault !== 'null-receipt' && typeof fault !== 'object',
      })
    }
    try {
      for (const { method, params } of batch) {
        if (method === 'eth_sendRawTransaction') await options.onRawTransaction?.(params?.[0] as Hex)
      }
      if (breaking === 'refuse') return void request.socket.destroy()
      if (breaking !== undefined) {
        const retryAfter = breaking === '429' ? { 'retry-after': '0' } : {}
        return void response.writeHead(Number(breaking), retryAfter).end(breaking)
      }
      const healthy = faulty.filter(
        ({ call, fault }) =>
          (fault === undefined || fault === 'drop-reply') && !refuseRange(call, options.logRangeLimit),
      )
      const [together, ...apart] = await Promise.all([
        healthy.length === 0 ? [] : (send(healthy.map(({ call }) => call)) as Promise<Reply[]>),
        ...faulty.filter((one) => !healthy.includes(one)).map(({ call, fault }) => answer(call, fault)),
      ])
      if (faulty.some(({ fault }) => fault === 'drop-reply')) return void request.socket.destroy()
      const byId = new Map([...together, ...apart].map((reply) => [reply.id, reply]))
      const replies = batch.map((call) => byId.get(call.id))
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify(Array.isArray(body) ? replies : replies[0]))
    } finally {
      for (const { method } of batch) done.set(method, (done.get(method) ?? 0) + 1)
      for (const wake of waiters) wake()
    }
  }

  const server = createServer((request, response) => {
    // An unreachable target looks to the caller like a broken connection.
    handle(request, response).catch(() => request.socket.destroy())
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', resolve)
  })
  const { port } = server.address() as AddressInfo

  const close = async () => {
    closing.abort()
    const closed = new Promise((resolve) => server.close(resolve))
    server.closeAllConnections()
    await closed
  }
  return {
    url: `http://127.0.0.1:${port}`,
    calls,
    rawTransactions: (only) =>
      calls
        .filter((call) => call.method === 'eth_sendRawTransaction' && (!only || call.isForwarded))
        .map((call) => call.params[0] as Hex),
    next: (method, fault, times = 1) => void planned.push({ method, fault, left: times }),
    always: (method, fault) => void planned.push({ method, fault, left: Number.POSITIVE_INFINITY }),
    random: (random) => {
      chance = random
    },
    heal: () => {
      planned.length = 0
      chance = undefined
    },
    waitFor: (method, count = 1) =>
      new Promise((resolve) => {
        const check = () => {
          if ((done.get(method) ?? 0) < count) return
          waiters.delete(check)
          resolve()
        }
        waiters.add(check)
        check()
      }),
    close,
    [Symbol.asyncDispose]: close,
  }
}

/** Returns the error of a provider that limits the range of eth_getLogs, for a range that is too long. */
function refuseRange({ id, method, params }: Call, limit: number | undefined): Reply | undefined {
  if (limit === undefined || method !== 'eth_getLogs') return undefined
  const { fromBlock, toBlock } = (params?.[0] ?? {}) as { fromBlock?: string; toBlock?: string }
  if (Number(toBlock) - Number(fromBlock) < limit) return undefined
  return { jsonrpc: '2.0', id, error: { code: -32602, message: `block range is over ${limit}` } }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      reject(signal.reason)
    })
  })
}
