import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { utf8 } from '../middleware/answerStore.ts'
import { refuse } from '../middleware/decision.ts'
import { createGate, type GateOptions, paymentIdHeader, paymentStatusHeader } from '../middleware/gate.ts'
import type { VerifiedPayment } from '../middleware/verification.ts'
import { challengeMediaType } from '../protocol/challenge.ts'
import { ProtocolError } from '../protocol/errors.ts'
import { toolResource } from '../protocol/toolResource.ts'
import { answerUnpaid, readToolPayment, type ToolAnswer, type ToolCall, withReceipts } from './dialects.ts'
import { replayedKey, traceparentKey } from './metaKeys.ts'

/** Options of `requirePayment` for tools: those of the other middleware, without what only HTTP has. */
export type ToolGateOptions = Omit<GateOptions, 'body' | 'basePath' | 'publicUrl'> & {
  /** Name of this server, if the provider has several with tools of one name: it stands in `mcp://tool/<server>/<tool>`. */
  server?: string
}

/** Runs a paid tool. @returns undefined if it was begun and nobody will hear its result: it is charged. */
type RunTool = (payment: VerifiedPayment) => Promise<CallToolResult | undefined>

/**
 * Creates a gate that serves calls of tools only if they are paid for, on the gate of the other middleware.
 *
 * @throws {ProtocolError} `invalid_field`, `price_below_minimum`
 * @throws {TypeError} for an invalid `gatewayUrl`, or an empty `providerId`.
 */
export function createToolGate({ server, ...options }: ToolGateOptions) {
  const gate = createGate(options)

  /**
   * Answers a call with the tool's result and its receipts, or with its price. If the tool throws, the payment is voided and the error
   * thrown on.
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
      // Whoever presents the payment again is told so, instead of getting an empty result.
      keep?.drop('broken off')
      return { kind: 'result', result: { isError: true, content: [] } }
    }
    const isVoided = ran.isError === true && (await gate.void(decision))
    const said = {
      [paymentIdHeader]: payment.paymentId,
      [paymentStatusHeader]: isVoided ? 'voided' : 'verified',
      // A handler that charges less changes them, and so does a void.
      ...decision.headers,
    }
    const result = withReceipts(ran, said, call)
    if (isVoided) keep?.forget()
    else keep?.keep({ status: 200, headers: [], body: utf8(JSON.stringify(result)) })
    return { kind: 'result', result }
  }
}

/** A result that was kept, as it was given. */
function repeat(kept: Uint8Array): CallToolResult {
  const result = JSON.parse(new TextDecoder().decode(kept)) as CallToolResult
  return { ...result, _meta: { ...result._meta, [replayedKey]: true } }
}
