import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { utf8 } from '../middleware/answerStore.ts'
import { refuse } from '../middleware/decision.ts'
import { createGate, type GateOptions, statusHeaders } from '../middleware/gate.ts'
import { readPass } from '../middleware/pricing.ts'
import type { VerifiedPayment } from '../middleware/verification.ts'
import { challengeMediaType } from '../protocol/challenge.ts'
import { ProtocolError } from '../protocol/errors.ts'
import { toolResource } from '../protocol/toolResource.ts'
import { answerUnpaid, readToolPayment, type ToolAnswer, type ToolCall, withReceipts } from './dialects.ts'
import { replayedKey, traceparentKey } from './metaKeys.ts'

/** Options of `requirePayment` for tools. They are the same as in the other middleware, except for those that only HTTP needs. */
export type ToolGateOptions = Omit<GateOptions, 'acceptX402V1' | 'basePath' | 'publicUrl'> & {
  /**
   * Name of this server, for a provider with several servers whose tools have the same names. It becomes part of `mcp://tool/<server>/<tool>`.
   */
  server?: string
}

/** Runs a paid tool. @returns undefined if the tool was started, but the caller stopped waiting. The call is charged anyway. */
type RunTool = (payment: VerifiedPayment) => Promise<CallToolResult | undefined>

/**
 * Creates a gate that serves only paid tool calls. It uses the same gate as the middleware for HTTP.
 *
 * @throws {ProtocolError} `invalid_field`, `price_below_minimum`
 * @throws {TypeError} for an invalid `gatewayUrl`, an empty `providerId`, or a `pricing` with a pass.
 */
export function createToolGate({ server, ...options }: ToolGateOptions) {
  if (readPass(options.pricing)) {
    const needed = 'sell the pass at an HTTP endpoint, or set a price per call'
    throw new TypeError(`pricing.pass: a tool call has no header for a pass; ${needed}`)
  }
  const gate = createGate(options)

  /**
   * Responds to a call with the tool's result and its receipts, or with the price. If the tool throws, the gate voids the payment and rethrows the
   * error.
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
    const isPaid = Object.keys(headers).length > 0
    const traceparent = call.meta?.[traceparentKey]
    const decision = await gate.check({
      method: 'POST',
      url,
      accept: challengeMediaType,
      ...headers,
      ...(call.headers && { headers: call.headers }),
      arguments: call.arguments,
      ...(typeof traceparent === 'string' && { traceparent }),
      ...(isPaid && { readBody: async () => utf8(JSON.stringify(call.arguments ?? {})) }),
    })
    if (decision.kind === 'answer') return answerUnpaid(decision.answer, call)
    if (decision.kind === 'again') return { kind: 'result', result: repeat(decision.answer.body) }
    const { payment, keep } = decision
    let ran: CallToolResult | undefined
    try {
      ran = await run(payment)
    } catch (error) {
      keep?.forget()
      await gate.void(decision)
      throw error
    }
    if (!ran) {
      // The caller stopped waiting, so there is no result to keep. A caller that presents the payment again learns that the response broke off.
      keep?.drop('broken off')
      return { kind: 'result', result: { isError: true, content: [] } }
    }
    const isVoided = ran.isError === true && (await gate.void(decision))
    const said = {
      ...statusHeaders(payment, isVoided),
      // These headers change if a handler charges less than the price, or if the payment is voided.
      ...decision.headers,
    }
    const result = withReceipts(ran, said, call)
    if (isVoided) keep?.forget()
    else keep?.keep({ status: 200, headers: [], body: utf8(JSON.stringify(result)) })
    return { kind: 'result', result }
  }
}

/** Returns a kept result unchanged. */
function repeat(kept: Uint8Array): CallToolResult {
  const result = JSON.parse(new TextDecoder().decode(kept)) as CallToolResult
  return { ...result, _meta: { ...result._meta, [replayedKey]: true } }
}
