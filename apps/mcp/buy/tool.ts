import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { CallToolResult, RequestId, ToolAnnotations } from '@modelcontextprotocol/sdk/types.js'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { z } from 'zod'
import type { Budget, Call } from './budget.ts'
import type { Reachable } from './reachable.ts'
import { type Content, failure, ours, paymentOf } from './result.ts'
import type { WalletFolder } from './walletFolder.ts'

/** The objects that the tools of one process share. */
export type ToolContext = {
  budget: Budget
  folder: WalletFolder
  reachable: Reachable
  /** Aborts when the process ends. */
  stopping: AbortSignal
}

/** A tool's result: our own text first, then content from others. */
export type ToolAnswer = { said: object; content?: Content[]; isError?: boolean }

type Tool<Shape extends z.ZodRawShape> = {
  title: string
  description: string
  inputSchema: Shape
  annotations: ToolAnnotations
  /** Returns the name of the writer of a call's result. Undefined for a tool that can't pay and returns only our own text. */
  writerOf?: (args: z.output<z.ZodObject<Shape>>) => string
  run: (args: z.output<z.ZodObject<Shape>>, context: { signal: AbortSignal }) => Promise<ToolAnswer>
}

type Extra = { signal: AbortSignal; requestId: RequestId }

/** Timeout in ms of a call. It includes the time that the user takes to approve a payment. */
export const callTimeoutMs = 600_000
const askTimeoutMs = 300_000

/** The argument `max_price_usdc` of all tools that can pay. */
export const priceShape = {
  max_price_usdc: z
    .string()
    .regex(/^(0|[1-9]\d{0,13})(\.\d{1,6})?$/)
    .optional()
    .describe('maximum price in decimal USDC like "0.05"; the owner’s limits also apply'),
}

/** Adds a tool to a server. Each call of the tool runs within the budget. */
export function addTool<Shape extends z.ZodRawShape>(
  server: McpServer,
  { budget, folder, stopping }: ToolContext,
  name: string,
  { writerOf, run, ...config }: Tool<Shape>,
): void {
  const callback = async (
    args: z.output<z.ZodObject<Shape>> & { max_price_usdc?: string },
    extra: Extra,
  ): Promise<CallToolResult> => {
    const { max_price_usdc: maxPrice } = args
    const call: Call = {
      maxPrice: maxPrice === undefined ? undefined : parseUsdc(maxPrice),
      ask: askerOf(server, extra),
      agreed: [],
      receipts: [],
    }
    const paid = () => ('max_price_usdc' in config.inputSchema ? paymentOf(call, folder.receiptFile) : {})
    const signal = AbortSignal.any([extra.signal, stopping, AbortSignal.timeout(callTimeoutMs)])
    try {
      const { said, content = [], isError = false } = await budget.within(call, () => run(args, { signal }))
      return { content: [ours({ ...said, ...paid() }), ...content], isError }
    } catch (error) {
      return failure(error, writerOf?.(args) ?? 'someone else', paid())
    }
  }
  server.registerTool(name, config, callback as never)
}

/**
 * Returns a function that asks the user through the host (MCP's elicitation); undefined if the host doesn't support that. Only
 * `pay: true` counts as approval.
 */
function askerOf({ server }: McpServer, { signal, requestId }: Extra): Call['ask'] {
  if (!server.getClientCapabilities()?.elicitation?.form) return undefined
  return async (message) => {
    const pay = { type: 'boolean', title: 'Pay', default: false } as const
    const requestedSchema = { type: 'object' as const, properties: { pay }, required: ['pay'] }
    const options = { signal, timeout: askTimeoutMs, relatedRequestId: requestId }
    const { action, content } = await server.elicitInput({ message, requestedSchema }, options)
    return action === 'accept' && content?.pay === true
  }
}
