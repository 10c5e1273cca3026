import type { BaseToolCallback, McpServer, RegisteredTool } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { AnySchema, ZodRawShapeCompat } from '@modelcontextprotocol/sdk/server/zod-compat.js'
import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js'
import type {
  CallToolResult,
  ServerNotification,
  ServerRequest,
  ToolAnnotations,
} from '@modelcontextprotocol/sdk/types.js'
import type { VerifiedPayment } from '../middleware/verification.ts'
import { toolResource } from '../protocol/toolResource.ts'
import type { ToolCall } from './dialects.ts'
import { mppErrorCode } from './metaKeys.ts'
import { createToolGate, type ToolGateOptions } from './toolGate.ts'

type Extra = RequestHandlerExtra<ServerRequest, ServerNotification>

/** The second argument of a paid tool's handler: the SDK's `extra`, and the payment. */
export type PaidExtra = Extra & { payment: VerifiedPayment }

type Schema = ZodRawShapeCompat | AnySchema

/** The part of an `McpServer` that registers paid tools. */
export type PaidServer = {
  /** Like `registerTool` of the server, for a tool that only paying callers are served. */
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

/** A tool's handler without its types: arguments if it has an `inputSchema`, then `extra`. */
type Handler = (...args: unknown[]) => CallToolResult | Promise<CallToolResult>

/**
 * Creates a function that registers paid tools with an `McpServer` of `@modelcontextprotocol/sdk`. They are served only to those who
 * paid, in any dialect. The tool's endpoint is registered at the gateway under the name of {@link toolResource}.
 *
 * If a tool throws or answers `isError`, its payment is voided. Receipts are in the result's `_meta`: `x402/payment-response`,
 * and the gateway's own in `tollkeeper/receipt`. The handler's `extra.payment` is the same as in the other middleware.
 *
 * @throws {ProtocolError} `invalid_field` for a price that isn't a USDC amount; `price_below_minimum`.
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
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
  const price = String(options.pricing.usdcPerUnit)

  /** A handler for the SDK that asks for payment before it calls the seller's. */
  function paidHandler(describe: () => Omit<ToolCall, 'meta' | 'arguments'>, handler: Handler): Handler {
    return async (...args) => {
      const extra = args.at(-1) as Extra
      const run = async (payment: VerifiedPayment) => {
        // Nobody waits for it any more, and nothing was done.
        extra.signal.throwIfAborted()
        try {
          return await handler(...args.slice(0, -1), { ...extra, payment })
        } catch (error) {
          if ((error as { code?: unknown })?.code === mppErrorCode) throw error
          // The server would answer the same; here the answer also gets the receipt that says it was voided.
          const text = error instanceof Error ? error.message : String(error)
          return { isError: true, content: [{ type: 'text' as const, text }] }
        }
      }
      const answer = await answerCall(
        { ...describe(), arguments: args.length > 1 ? args[0] : undefined, meta: extra._meta },
        run,
      )
      if (answer.kind === 'result') return answer.result
      const { McpError } = await import('@modelcontextprotocol/sdk/types.js')
      throw new McpError(answer.code, answer.message, answer.data)
    }
  }

  return (server) => ({
    registerTool(name, config, handler) {
      // Throws at once for a name that can't be sold.
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
      const _meta = { ...config._meta, ...priceMeta(price) }
      const tool: RegisteredTool = server.registerTool(name, { ...config, _meta }, wrap(handler))
      const { update } = tool
      // A later update of a paid tool changes what is sold, not whether it is paid for.
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

/** A listed tool's price: under our key, and those by which the client of `agents` warns. */
export function priceMeta(usdc: string): Record<string, unknown> {
  return {
    'tollkeeper/price': { usdc },
    'agents-x402/paymentRequired': true,
    'agents-x402/priceUSD': usdc,
  }
}
