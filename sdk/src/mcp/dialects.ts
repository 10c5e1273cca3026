import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import type { GateAnswer } from '../middleware/decision.ts'
import { toV1 } from '../middleware/paymentRequired.ts'
import type { PaymentHeaders } from '../middleware/presentedPayment.ts'
import { parseChallenge } from '../protocol/challenge.ts'
import { isErrorCode, ProtocolError } from '../protocol/errors.ts'
import { isRecord, parseJson, textOf } from '../protocol/fields.ts'
import { decodePaymentHeader, encodePaymentHeader, type PaymentRequired, reasonOf } from '../protocol/x402.ts'
import {
  capabilitiesKey,
  demandKeys,
  type Meta,
  mppErrorCode,
  paymentKeys,
  receiptKeys,
  x402Extension,
} from './metaKeys.ts'
import { mppChallenge, readMppCredential } from './mpp.ts'

/** The fields of a tool call that its payment depends on. */
export type ToolCall = {
  /** The tool's name. */
  name: string
  /** `params.arguments`. A kept result is replayed only for the same arguments. */
  arguments?: unknown
  /** The HTTP headers of the call, if its transport has any. */
  headers?: { get(name: string): string | null } | undefined
  /** `params._meta`. */
  meta: Meta | undefined
  /** The capabilities that the client declared when it connected. */
  capabilities?: object | undefined
  /** Whether the tool declares an `outputSchema`. Hosts check any `structuredContent` against it. */
  hasOutputSchema: boolean
}

/** The response to a call: a result or, if the client supports MPP, MPP's error. */
export type ToolAnswer =
  | { kind: 'result'; result: CallToolResult }
  | { kind: 'error'; code: number; message: string; data: object }

/**
 * Reads the payment of a call in any dialect. Returns it as the equivalent HTTP header.
 *
 * @throws {ProtocolError} `invalid_payload` for an invalid payment, and for two payments in one call, because two programs could each read a
 * different payment.
 */
export function readToolPayment(meta: Meta | undefined): PaymentHeaders {
  const presented = Object.values(paymentKeys).filter((key) => meta?.[key] !== undefined)
  const [key] = presented
  if (key === undefined) return {}
  if (presented.length > 1) throw invalid('a call may contain only one payment')
  const value = meta?.[key]
  if (key === paymentKeys.mpp) return { paymentSignature: encode(readMppCredential(value)) }
  if (key === paymentKeys.x402 && isRecord(value)) return { paymentSignature: encode(value) }
  if (typeof value !== 'string') throw invalid(`${key} must be a string`)
  if (key === paymentKeys.own) return { authorization: value }
  return key === paymentKeys.x402V1 ? { xPayment: value } : { paymentSignature: value }
}

/** Maximum length of the JSON. Every valid payment is much shorter. */
const maxJsonLength = 12_288

function encode(payment: object): string {
  let text: string
  try {
    text = JSON.stringify(payment)
  } catch {
    throw invalid('the JSON is nested too deeply')
  }
  if (text.length > maxJsonLength) throw invalid(`expected at most ${maxJsonLength} characters`)
  return encodePaymentHeader(payment)
}

/** Returns a gate's response to a call that isn't served. It contains all dialects at once. */
export function answerUnpaid(answer: GateAnswer, call: ToolCall): ToolAnswer {
  const body = parseJson(answer.body)
  if (answer.status !== 402 || !isRecord(body)) return { kind: 'result', result: tellProblem(answer, body) }
  const header = answer.headers['PAYMENT-REQUIRED']
  const required = header === undefined ? undefined : (decodePaymentHeader(header) as PaymentRequired)
  const [first] = required?.accepts ?? []
  const exact = first?.scheme === 'exact' ? first : undefined
  const challenge = exact && parseChallenge(body)
  const reason = isErrorCode(challenge?.code) ? reasonOf(challenge.code, 1) : challenge?.error
  const v1 = challenge && toV1(exact, challenge, reason ?? 'Payment required')
  const challenges = challenge ? [mppChallenge(exact, challenge)] : []
  if (challenges.length > 0 && showsMpp(call)) return demandMpp(challenges, required, body)
  // Clients that follow the specification parse the first text. The second text is for clients in which a model pays with x402 v1.
  const texts = required ? [required, v1].filter((one) => one !== undefined) : [{ error: body.error }]
  const result = {
    isError: true,
    content: texts.map((one) => ({ type: 'text' as const, text: JSON.stringify(one) })),
    ...(required && !call.hasOutputSchema && { structuredContent: required }),
    ...(required && readsExtension(call) && { resultType: 'payment_required', paymentRequired: required }),
    _meta: {
      ...(required && { [demandKeys.agents]: required }),
      ...(challenges.length > 0 && { [demandKeys.mpp]: { httpStatus: 402, challenges } }),
      [demandKeys.own]: body,
    },
  }
  return { kind: 'result', result: result as CallToolResult }
}

function demandMpp(challenges: object[], required: object | undefined, body: Meta): ToolAnswer {
  const data = { httpStatus: 402, challenges, x402: required, [demandKeys.own]: body }
  return { kind: 'error', code: mppErrorCode, message: textOf(body.error), data }
}

function tellProblem({ status, headers, body }: GateAnswer, problem: unknown): CallToolResult {
  const retryAfter = headers['Retry-After'] ?? headers['retry-after']
  return {
    isError: true,
    content: [{ type: 'text', text: body }],
    _meta: {
      [demandKeys.problem]: { ...(isRecord(problem) && problem), status, ...(retryAfter && { retryAfter }) },
    },
  }
}

/**
 * Returns the result of a paid call, including its receipts.
 *
 * @param said the headers about the payment that an HTTP response would have.
 */
export function withReceipts(
  result: CallToolResult,
  said: Readonly<Record<string, string>>,
  { meta }: ToolCall,
): CallToolResult {
  const header = said['PAYMENT-RESPONSE'] ?? said['X-PAYMENT-RESPONSE']
  const response = header === undefined ? undefined : decodePaymentHeader(header)
  const paymentId = said['Service-Payment-Id']
  const charged = said['Service-Charged']
  const receipt = said['Service-Receipt']
  const own = {
    paymentId,
    status: said['Service-Payment-Status'],
    ...(charged !== undefined && { charged }),
    ...(receipt !== undefined && { receipt }),
  }
  const mpp = meta?.[paymentKeys.mpp]
  const _meta = {
    ...result._meta,
    [receiptKeys.own]: own,
    ...(response !== undefined && { [receiptKeys.x402]: response, [receiptKeys.x402V1]: response }),
    ...(isRecord(mpp) && receipt !== undefined && { [receiptKeys.mpp]: mppReceipt(mpp, paymentId) }),
  }
  return { ...result, _meta }
}

/** Returns MPP's receipt. Its reference is the payment's id, because the transaction doesn't exist before the batch settles. */
function mppReceipt({ challenge }: Meta, paymentId: string | undefined): object {
  const { id } = isRecord(challenge) ? challenge : {}
  const timestamp = new Date().toISOString()
  return { method: 'evm', status: 'success', reference: paymentId, timestamp, challengeId: id }
}

function showsMpp({ meta, capabilities }: ToolCall): boolean {
  if (meta?.[paymentKeys.mpp] !== undefined) return true
  return extensionsOf(meta, capabilities).some((name) => name.startsWith('org.paymentauth/'))
}

function readsExtension({ meta, capabilities }: ToolCall): boolean {
  return extensionsOf(meta, capabilities).includes(x402Extension)
}

function extensionsOf(meta: Meta | undefined, capabilities: object | undefined): string[] {
  return [meta?.[capabilitiesKey], capabilities].flatMap((said) =>
    isRecord(said) && isRecord(said.extensions) ? Object.keys(said.extensions) : [],
  )
}

function invalid(reason: string): ProtocolError {
  return new ProtocolError('invalid_payload', `Payment: ${reason}`)
}
