import type { BaseToolCallback, McpServer, RegisteredTool } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { AnySchema, ZodRawShapeCompat } from '@modelcontextprotocol/sdk/server/zod-compat.js'
import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js'
import type {
  CallToolResult,
  ServerNotification,
  ServerRequest,
  ToolAnnotations,
} from '@modelcontextprotocol/sdk/types.js'
import { createPrices } from '../middleware/pricing.ts'
import type { VerifiedPayment } from '../middleware/verification.ts'
import { formatShortUsdc } from '../protocol/amount.ts'
import { toolResource } from '../protocol/toolResource.ts'
import type { ToolCall } from './dialects.ts'
import { mppErrorCode } from './metaKeys.ts'
import { createToolGate, type ToolGateOptions } from './toolGate.ts'

type Extra = RequestHandlerExtra<ServerRequest, ServerNotification>

/** The second argument of a paid tool's handler: the SDK's `extra`, with the payment. */
export type PaidExtra = Extra & { payment: VerifiedPayment }

type Schema = ZodRawShapeCompat | AnySchema

/** The object with which a seller registers paid tools on an `McpServer`. */
export type PaidServer = {
  /** Works like the server's `registerTool`, for a tool that only serves paying callers. */
  registerTool<Output extends Schema, Input extends undefined | Schema = undefined>(
    name: string,
    config: {
      title?: string
      description?: string
      inputSchema?: Input
      outputSchema?: Output
      annotations?: ToolAnnotations
      _meta?: Record<string, unknown>
    },
    handler: BaseToolCallback<CallToolResult, PaidExtra, Input>,
  ): RegisteredTool
}

/** A tool's handler without its types. It receives arguments if the tool has an `inputSchema`, and then `extra`. */
type Handler = (...args: unknown[]) => CallToolResult | Promise<CallToolResult>

/**
 * Creates a function that registers paid tools with an `McpServer` of `@modelcontextprotocol/sdk`. These tools only serve callers who paid, in any
 * dialect. At the gateway, register each tool as an endpoint with the name that {@link toolResource} returns.
 *
 * If a tool throws or returns `isError`, its payment is voided. The result's `_meta` contains the receipts: x402's in `x402/payment-response`, and
 * the gateway's own in `tollkeeper/receipt`. The handler's `extra.payment` is the same as in the other middleware.
 *
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum`.
 * @throws {TypeError} for an invalid `gatewayUrl`, an empty `providerId`, or a `pricing` with a pass, which tools can't sell.
 * @example
 * import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
 * import { requirePayment } from '@tollkeeper/sdk/mcp'
 *
 * const paid = requirePayment({
 *   gatewayUrl: 'https://gateway.example',
 *   providerId: 'prov_1',
 *   apiKey: process.env.TOLLKEEPER_API_KEY,
 *   pricing: { usdcPerUnit: '0.01' },
 * })
 * const server = new McpServer({ name: 'weather', version: '1.0.0' })
 * paid(server).registerTool('forecast', { description: 'Weather of tomorrow' }, async ({ payment }) => ({
 *   content: [{ type: 'text', text: `Sunny, paid by ${payment.paymentId}` }],
 * }))
 */
export function requirePayment(options: ToolGateOptions): (server: McpServer) => PaidServer {
  const answerCall = createToolGate(options)
  // If the price is a function, the price isn't known before a call.
  const { fixed } = createPrices(options.pricing, 0)
  const listed = fixed === undefined ? undefined : priceMeta(formatShortUsdc(fixed))

  /** Returns a handler for the SDK that requires payment before it calls the seller's handler. */
  function paidHandler(describe: () => Omit<ToolCall, 'meta' | 'arguments'>, handler: Handler): Handler {
    return async (...args) => {
      const extra = args.at(-1) as Extra
      const run = async (payment: VerifiedPayment) => {
        // If the caller has already stopped waiting, don't run the tool.
        extra.signal.throwIfAborted()
        try {
          return await handler(...args.slice(0, -1), { ...extra, payment })
        } catch (error) {
          if ((error as { code?: unknown })?.code === mppErrorCode) throw error
          // Return the error here: the MCP server would return it without the receipt, which states that the payment was voided.
          const text = error instanceof Error ? error.message : String(error)
          return { isError: true, content: [{ type: 'text' as const, text }] }
        }
      }
      const answer = await answerCall(
        {
          ...describe(),
          arguments: args.length > 1 ? args[0] : undefined,
          headers: headersOf(extra),
          meta: extra._meta,
        },
        run,
      )
      if (answer.kind === 'result') return answer.result
      const { McpError } = await import('@modelcontextprotocol/sdk/types.js')
      throw new McpError(answer.code, answer.message, answer.data)
    }
  }

  return (server) => ({
    registerTool(name, config, handler) {
      // Throws immediately if a tool of this name can't be sold.
      toolResource(name, options.server)
      let current = name
      const wrap = (one: unknown) =>
        paidHandler(
          () => ({
            name: current,
            capabilities: server.server.getClientCapabilities(),
            hasOutputSchema: tool.outputSchema !== undefined,
          }),
          one as Handler,
        ) as never
      const _meta = { ...config._meta, ...listed }
      const tool: RegisteredTool = server.registerTool(name, { ...config, _meta }, wrap(handler))
      const { update } = tool
      // A later update of a paid tool can change the tool, but not that callers must pay.
      tool.update = ({ callback, ...updates }) => {
        if (typeof updates.name === 'string') {
          toolResource(updates.name, options.server)
          current = updates.name
        }
        update({ ...updates, ...(callback && { callback: wrap(callback) }) })
      }
      return tool
    },
  })
}

/** Returns the HTTP headers of a call. Returns undefined if its transport has none. */
function headersOf({ requestInfo }: Extra): ToolCall['headers'] {
  if (requestInfo === undefined) return undefined
  return {
    get(name) {
      const value = requestInfo.headers[name.toLowerCase()]
      return (Array.isArray(value) ? value.join(', ') : value) ?? null
    },
  }
}

/**
 * Returns the price of a tool for the list of tools: under our key, and under the keys that Cloudflare's `agents` reads to warn its user about a
 * price.
 */
export function priceMeta(usdc: string): Record<string, unknown> {
  return {
    'tollkeeper/price': { usdc },
    'agents-x402/paymentRequired': true,
    'agents-x402/priceUSD': usdc,
  }
}
