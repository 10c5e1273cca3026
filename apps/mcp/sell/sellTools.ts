import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  type CallToolResult,
  type JSONRPCMessage,
  type JSONRPCRequest,
  McpError,
  type RequestId,
  type Tool,
} from '@modelcontextprotocol/sdk/types.js'
import { describeError } from '@tollkeeper/runtime/log'
import type { ToolAnswer, ToolCall } from '@tollkeeper/sdk/mcp/dialects'
import { paymentKeys, receiptKeys, replayedKey } from '@tollkeeper/sdk/mcp/metaKeys'
import { priceMeta } from '@tollkeeper/sdk/mcp/requirePayment'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { isRecord } from '@tollkeeper/sdk/protocol/fields'
import type { PriceOf } from './prices.ts'

/** Error codes of JSON-RPC 2.0 and MCP. */
const [invalidParams, internalError] = [-32602, -32603]
/** Maximum number of open requests of one client. It is high, because an open request takes only memory. */
const maxOpenRequests = 1_000

export type SellToolsOptions = {
  priceOf: PriceOf
  /** Pays a call of a tool with this price, and returns the response. */
  answerCall: (
    price: string,
    call: ToolCall,
    run: () => Promise<CallToolResult | undefined>,
  ) => Promise<ToolAnswer>
  /** Called with the server's tools before any of them is sold. */
  register: (tools: readonly Tool[]) => Promise<void>
  /** Called when the client was charged for a call. */
  onPaid?: (() => void) | undefined
  warn: (message: string) => void
}

/**
 * Connects a client with the server whose tools are sold. Messages are forwarded unchanged, with two exceptions: a call of a tool
 * is paid first, and the list of tools shows only the tools that are sold, with their prices.
 *
 * @returns the side that closed first, once both sides are closed.
 */
export async function sellTools(
  client: Transport,
  server: Transport,
  options: SellToolsOptions,
): Promise<'client' | 'server'> {
  const { priceOf, warn } = options
  const open = createOpenRequests()
  const listing = createListing(server, options)
  const paidCalls = createPaidCalls(toServer, listing, options)
  let capabilities: object | undefined

  /** Sends a message once the server is connected. Over HTTP, the client's first message arrives before that. */
  async function toServer(message: JSONRPCMessage): Promise<void> {
    await started
    await send(server, message)
  }

  async function toClient(message: JSONRPCMessage): Promise<void> {
    const relatedRequestId = open.relatedTo(message)
    await send(client, message, relatedRequestId === undefined ? undefined : { relatedRequestId })
  }

  async function send(to: Transport, message: JSONRPCMessage, related?: { relatedRequestId: RequestId }) {
    try {
      await to.send(message, related)
    } catch (error) {
      warn(`a message was not sent: ${describeError(error)}`)
    }
  }

  async function onRequest(request: JSONRPCRequest): Promise<void> {
    const { id, jsonrpc, method, params } = request
    const refuse = (message: string) => toClient({ jsonrpc, id, error: { code: invalidParams, message } })
    if (method === 'initialize' && isRecord(params?.capabilities)) capabilities = params.capabilities
    const name = params?.name
    if (method === 'tools/call' && typeof name !== 'string')
      return refuse('name: expected the name of a tool')
    const fault = open.begin(request)
    if (fault !== undefined) return refuse(fault)
    const price = method === 'tools/call' ? priceOf(name as string) : 'free'
    if (price === 'free') return toServer(request)
    const answer = await paidCalls.answer(request, name as string, price, capabilities)
    open.end(id)
    if (answer) await toClient(answer)
  }

  async function onClientMessage(message: JSONRPCMessage): Promise<void> {
    if ('method' in message && 'id' in message) return onRequest(message)
    const { method, params } = message as { method?: string; params?: { requestId?: RequestId } }
    if (method === 'notifications/cancelled') {
      paidCalls.cancel(params?.requestId ?? '')
      open.end(params?.requestId ?? '')
    }
    await toServer(message)
  }

  async function onServerMessage(message: JSONRPCMessage): Promise<void> {
    if ('method' in message) {
      if (message.method === 'notifications/tools/list_changed') listing.forget()
      return toClient(message)
    }
    const { id } = message
    if (id !== undefined && (listing.take(id, message) || paidCalls.take(id, message))) return
    const isList = id !== undefined && open.end(id) === 'tools/list' && 'result' in message
    await toClient(isList ? showPrices(message, priceOf) : message)
  }

  /**
   * Handles a message from an untrusted client. No message may end the process, which also sells to others. An error is reported,
   * and a request always gets a response.
   */
  async function handle(message: JSONRPCMessage, by: (message: JSONRPCMessage) => Promise<void>) {
    try {
      await by(message)
    } catch (error) {
      warn(`a message could not be handled: ${describeError(error)}`)
      if (by !== onClientMessage || !('method' in message && 'id' in message)) return
      const { jsonrpc, id } = message
      open.end(id)
      const refusal = { code: internalError, message: 'The message could not be handled' }
      await toClient({ jsonrpc, id, error: refusal })
    }
  }

  client.onmessage = (message: JSONRPCMessage) => void handle(message, onClientMessage)
  server.onmessage = (message: JSONRPCMessage) => void handle(message, onServerMessage)

  const ended = new Promise<'client' | 'server'>((resolve) => {
    client.onclose = () => resolve('client')
    server.onclose = () => resolve('server')
  })
  const onerror = (error: Error) => warn(error.message)
  Object.assign(client, { onerror })
  Object.assign(server, { onerror })
  const started = server.start()
  await started
  await client.start()
  const first = await ended
  paidCalls.end()
  listing.end()
  await Promise.all([client.close(), server.close()])
  return first
}

/**
 * Whether the response charged more than zero for this call. A replayed result was charged to an earlier call. A result with
 * `isError` never counts: if the gateway hasn't confirmed the void yet, the receipt still says `verified`.
 */
function isCharged(answer: ToolAnswer): boolean {
  if (answer.kind !== 'result' || answer.result.isError === true) return false
  const receipt = answer.result._meta?.[receiptKeys.own]
  if (!isRecord(receipt) || answer.result._meta?.[replayedKey] !== undefined) return false
  const { status, charged } = receipt
  return status === 'verified' && (charged === undefined || parseUsdc(String(charged)) > 0n)
}

/** Tracks a client's requests that have no response yet. */
function createOpenRequests() {
  const methods = new Map<RequestId, { method: string; token: unknown }>()
  /** Requests by their progress token. Over HTTP, a progress notification is sent on the stream of its request. */
  const streams = new Map<unknown, RequestId>()

  return {
    /** Registers a request. @returns the reason why the request is rejected; undefined if it is now open. */
    begin({ id, method, params }: JSONRPCRequest): string | undefined {
      if (methods.has(id)) return 'The id belongs to an open request; use another id'
      if (methods.size >= maxOpenRequests)
        return `At most ${maxOpenRequests} requests can be open; wait for a response`
      const token = params?._meta?.progressToken
      methods.set(id, { method, token })
      if (token !== undefined) streams.set(token, id)
      return undefined
    },
    /** Removes a request. @returns the request's method; undefined if the request isn't open. */
    end(id: RequestId): string | undefined {
      const ended = methods.get(id)
      if (ended === undefined) return undefined
      methods.delete(id)
      if (streams.get(ended.token) === id) streams.delete(ended.token)
      return ended.method
    },
    relatedTo(message: JSONRPCMessage): RequestId | undefined {
      if (!('method' in message) || message.method !== 'notifications/progress') return undefined
      return streams.get(message.params?.progressToken)
    },
  }
}

/** A call of a priced tool that has no response yet. */
type PaidCall = {
  isCancelled: boolean
  /** Set once the call is sent to the server. Called with the response, or with undefined if the client cancels the call. */
  settle?: (message: JSONRPCMessage | undefined) => void
  fail?: (error: Error) => void
}

/** Runs calls of priced tools: pays each call, sends it to the server, and waits for the response. */
function createPaidCalls(
  toServer: (message: JSONRPCMessage) => Promise<void>,
  listing: Listing,
  { answerCall, onPaid }: Pick<SellToolsOptions, 'answerCall' | 'onPaid'>,
) {
  const calls = new Map<RequestId, PaidCall>()

  /** Sends a paid call to the server. */
  async function run(call: PaidCall, request: JSONRPCRequest): Promise<CallToolResult | undefined> {
    if (call.isCancelled) throw new Error('cancelled')
    const reply = await new Promise<JSONRPCMessage | undefined>((resolve, reject) => {
      Object.assign(call, { settle: resolve, fail: reject })
      void toServer({ ...request, params: withoutPayment(request.params) })
    })
    if (!reply) return undefined
    if ('error' in reply) throw new McpError(reply.error.code, reply.error.message, reply.error.data)
    return (reply as unknown as { result: CallToolResult }).result
  }

  async function sell(
    call: PaidCall,
    request: JSONRPCRequest,
    price: string,
    asked: Omit<ToolCall, 'hasOutputSchema' | 'meta' | 'arguments'>,
  ): Promise<JSONRPCMessage> {
    const { id, jsonrpc, params } = request
    try {
      const hasOutputSchema = (await listing.tools()).get(asked.name)?.outputSchema !== undefined
      const toAnswer = { ...asked, arguments: params?.arguments, meta: params?._meta, hasOutputSchema }
      const answer = await answerCall(price, toAnswer, () => run(call, request))
      if (isCharged(answer)) onPaid?.()
      if (answer.kind === 'result') return { jsonrpc, id, result: answer.result }
      const { code, message, data } = answer
      return { jsonrpc, id, error: { code, message, data } }
    } catch (error) {
      return { jsonrpc, id, error: toRpcError(error) }
    }
  }

  return {
    /** @returns undefined for a cancelled call, because no one waits for its response. */
    async answer(
      request: JSONRPCRequest,
      name: string,
      price: string | undefined,
      capabilities: object | undefined,
    ): Promise<JSONRPCMessage | undefined> {
      const { id, jsonrpc, params } = request
      const refuse = (message: string) => ({ jsonrpc, id, error: { code: invalidParams, message } })
      if (price === undefined) return refuse(`Tool ${name} not found`)
      // A task gets a response before it is done. So at the time of the charge, no one knows whether the tool fails.
      if (params?.task !== undefined)
        return refuse('Paid tools can’t be called as a task; call the tool without one')
      if (calls.has(id)) return refuse('The id belongs to an open request; use another id')
      const call: PaidCall = { isCancelled: false }
      calls.set(id, call)
      const answer = await sell(call, request, price, { name, capabilities })
      calls.delete(id)
      return call.isCancelled ? undefined : answer
    },
    /** Whether a message of the server is the response to a paid call. */
    take(id: RequestId, message: JSONRPCMessage): boolean {
      const call = calls.get(id)
      call?.settle?.(message)
      return call !== undefined
    },
    /** Cancels a call, to which the server then doesn't respond. The call is still charged, as it is if a client disconnects. */
    cancel(id: RequestId): void {
      const call = calls.get(id)
      if (!call) return
      call.isCancelled = true
      call.settle?.(undefined)
    },
    end(): void {
      for (const { fail } of calls.values()) fail?.(new Error('The server ended'))
    },
  }
}

type Listing = ReturnType<typeof createListing>

/** Lists the server's tools, by requests whose ids no client uses. */
function createListing(
  server: Transport,
  { priceOf, register, warn }: Pick<SellToolsOptions, 'priceOf' | 'register' | 'warn'>,
) {
  const waiting = new Map<
    RequestId,
    { resolve: (message: JSONRPCMessage) => void; reject: (error: Error) => void }
  >()
  let known: Promise<Map<string, Tool>> | undefined
  let ids = 0

  async function list(): Promise<Map<string, Tool>> {
    const tools: Tool[] = []
    let cursor: string | undefined
    do {
      const id = `tollkeeper-${crypto.randomUUID()}-${++ids}`
      const reply = await new Promise<JSONRPCMessage>((resolve, reject) => {
        waiting.set(id, { resolve, reject })
        const params = cursor === undefined ? {} : { cursor }
        server.send({ jsonrpc: '2.0', id, method: 'tools/list', params }).catch(reject)
      })
      if (!('result' in reply)) throw new Error(`The server lists no tools: ${JSON.stringify(reply)}`)
      const page = reply.result as { tools?: Tool[]; nextCursor?: string }
      tools.push(...(page.tools ?? []))
      cursor = page.nextCursor
    } while (cursor !== undefined)
    for (const { name } of tools)
      if (priceOf(name) === undefined) warn(`${name} has no price and is not served`)
    await register(tools)
    return new Map(tools.map((tool) => [tool.name, tool]))
  }

  return {
    /**
     * Returns the server's tools. Rejects if the server isn't responding or the gateway rejects the tools; then nothing is sold.
     */
    tools(): Promise<Map<string, Tool>> {
      known ??= list().catch((error) => {
        known = undefined
        throw error
      })
      return known
    },
    forget(): void {
      known = undefined
    },
    /** Whether a message of the server is the response to one of our requests. */
    take(id: RequestId, message: JSONRPCMessage): boolean {
      const asked = waiting.get(id)
      asked?.resolve(message)
      return waiting.delete(id)
    },
    end(): void {
      for (const { reject } of waiting.values()) reject(new Error('The server ended'))
    },
  }
}

/** Removes the payment, because the server doesn't need it. */
function withoutPayment(params: JSONRPCRequest['params']): JSONRPCRequest['params'] {
  if (!isRecord(params?._meta)) return params
  const keys: readonly string[] = Object.values(paymentKeys)
  const _meta = Object.fromEntries(Object.entries(params._meta).filter(([key]) => !keys.includes(key)))
  return { ...params, _meta }
}

function showPrices(message: JSONRPCMessage, priceOf: PriceOf): JSONRPCMessage {
  const { result } = message as { result: { tools?: Tool[] } }
  const tools = (result.tools ?? []).flatMap((tool) => {
    if (typeof tool?.name !== 'string') return []
    const price = priceOf(tool.name)
    if (price === undefined) return []
    return price === 'free' ? [tool] : [{ ...tool, _meta: { ...tool._meta, ...priceMeta(price) } }]
  })
  return { ...message, result: { ...result, tools } } as JSONRPCMessage
}

function toRpcError(error: unknown): { code: number; message: string; data?: unknown } {
  if (!(error instanceof McpError)) return { code: internalError, message: (error as Error).message }
  const { code, data } = error
  // The SDK puts the error code in front of the server's message.
  const message = error.message.replace(/^MCP error -?\d+: /, '')
  return { code, message, ...(data !== undefined && { data }) }
}
