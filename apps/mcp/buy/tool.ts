import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { CallToolResult, RequestId, ToolAnnotations } from '@modelcontextprotocol/sdk/types.js'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { z } from 'zod'
import type { Call, Purse } from './purse.ts'
import type { Reachable } from './reachable.ts'
import { type Content, failure, ours, paymentOf } from './result.ts'
import type { WalletFolder } from './walletFolder.ts'

/** What the tools of one process share. */
export type ToolContext = {
  purse: Purse
  folder: WalletFolder
  reachable: Reachable
  /** Fires when the process ends. */
  stopping: AbortSignal
}

/** A tool's answer: first our own words, then those of others. */
export type ToolAnswer = { said: object; content?: Content[]; isError?: boolean }

type Tool<Shape extends z.ZodRawShape> = {
  title: string
  description: string
  inputSchema: Shape
  annotations: ToolAnnotations
  /** Names the writer of a call's result. Absent: nobody else writes, and nothing is paid. */
  writerOf?: (args: z.output<z.ZodObject<Shape>>) => string
  run: (args: z.output<z.ZodObject<Shape>>, context: { signal: AbortSignal }) => Promise<ToolAnswer>
}

type Extra = { signal: AbortSignal; requestId: RequestId }

/** How long a call takes at most, with the user's time to answer. */
export const callTimeoutMs = 600_000
const askTimeoutMs = 300_000

/** The argument that all paying tools have besides their own. */
export const priceShape = {
  max_price_usdc: z
    .string()
    .regex(/^(0|[1-9]\d{0,13})(\.\d{1,6})?$/)
    .optional()
    .describe('no price above this is paid, decimal USDC like "0.05"; the limits of the owner hold as well'),
}

/** Adds a tool to a server, and runs each call of it within the purse. */
export function addTool<Shape extends z.ZodRawShape>(
  server: McpServer,
  { purse, folder, stopping }: ToolContext,
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
      const { said, content = [], isError = false } = await purse.within(call, () => run(args, { signal }))
      return { content: [ours({ ...said, ...paid() }), ...content], isError }
    } catch (error) {
      return failure(error, writerOf?.(args) ?? 'somebody else', paid())
    }
  }
  server.registerTool(name, config, callback as never)
}

/** Asks the user through the host, if it can (MCP's elicitation). Only `pay: true` counts as a yes. */
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
