import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { createGate, type GateOptions, refuse } from '../middleware/gate.ts'
import { paidHeaders } from '../middleware/paidHeaders.ts'
import type { VerifiedPayment } from '../middleware/verification.ts'
import { challengeMediaType } from '../protocol/challenge.ts'
import { ProtocolError } from '../protocol/errors.ts'
import { toolResource } from '../protocol/toolResource.ts'
import { answerUnpaid, readToolPayment, type ToolAnswer, type ToolCall, withReceipts } from './dialects.ts'

/** Options of `requirePayment` for tools: those of the other middleware, but what only HTTP has. */
export type ToolGateOptions = Omit<GateOptions, 'body' | 'basePath' | 'publicUrl'> & {
  /** Name of this server, where the provider has several whose tools may have one name: it stands in `mcp://tool/<server>/<tool>`. */
  server?: string
}

/** Runs a tool that was paid for. */
type RunTool = (payment: VerifiedPayment) => Promise<CallToolResult>

/**
 * Creates what serves calls of tools only if they are paid for, on the gate of the other middleware.
 *
 * @throws {ProtocolError} `invalid_field`, `price_below_minimum`
 * @throws {TypeError} for a `gatewayUrl` that is no URL, or an empty `providerId`.
 */
export function createToolGate({ server, ...options }: ToolGateOptions) {
  const gate = createGate(options)

  /**
   * Answers a call: with what the tool gives, and its receipts, or with what it costs. Where the tool throws, the payment is voided
   * and the error thrown on.
   */
  return async function answerCall(call: ToolCall, run: RunTool): Promise<ToolAnswer> {
    const url = toolResource(call.name, server)
    let headers: ReturnType<typeof readToolPayment>
    try {
      headers = readToolPayment(call.meta)
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      return answerUnpaid(refuse(error.code, error.message).answer, call)
    }
    const decision = await gate.check({ method: 'POST', url, accept: challengeMediaType, ...headers })
    if (decision.kind === 'answer') return answerUnpaid(decision.answer, call)
    let result: CallToolResult
    try {
      result = await run(decision.payment)
    } catch (error) {
      await gate.void(decision.payment)
      throw error
    }
    const handled = { hasFailed: result.isError === true, cacheControl: null }
    return { kind: 'result', result: withReceipts(result, await paidHeaders(gate, decision, handled), call) }
  }
}
